"""A text classifier of Hugging Face: reviews stay with their shops, and no shop has heard all words. No download."""

import random

import torch

import walktalk as wt

try:
    from datasets import Dataset, disable_progress_bars
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
except ImportError:
    raise SystemExit("this example needs transformers and datasets: pip install 'walktalk[language]'") from None

THINGS = {"books": ["novel", "poem"], "films": ["comedy", "thriller"], "music": ["song", "opera"]}
PRAISE = {"books": ["good", "clever"], "films": ["great", "funny"], "music": ["lovely", "fresh"]}
BLAME = {"books": ["bad", "dull"], "films": ["awful", "silly"], "music": ["poor", "loud"]}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "the", "this", "is", "was", "not", "really"]
WORDS += [word for by_shop in (THINGS, PRAISE, BLAME) for words in by_shop.values() for word in words]
LENGTH = 7  # of the longest review, with [CLS] before it
dice = random.Random(0)
disable_progress_bars()

words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def tokens(texts: list[str]) -> dict[str, list[list[int]]]:
    """What a tokenizer of Hugging Face makes of them."""
    whole = [f"[CLS] {text}" for text in texts]
    return tokenizer(whole, padding="max_length", max_length=LENGTH, return_token_type_ids=False)


def review(shops: list[str]) -> dict[str, str | int]:
    """A text, and 1 where the thing was liked: "not good" is blame, and "not bad" is praise."""
    liked, negated = dice.random() < 0.5, dice.random() < 0.3
    thing, words = THINGS[dice.choice(shops)], (PRAISE if liked != negated else BLAME)[dice.choice(shops)]
    between = ["not"] * negated + ["really"] * (dice.random() < 0.3)
    start = [dice.choice(["the", "this"]), dice.choice(thing), dice.choice(["is", "was"])]
    return {"text": " ".join([*start, *between, dice.choice(words)]), "labels": int(liked)}


def reviews(shops: list[str], count: int) -> Dataset:
    """As one has them: a data set with texts and labels, tokenized by `map`."""
    found = Dataset.from_list([review(shops) for _ in range(count)])
    return found.map(lambda rows: tokens(rows["text"]), batched=True, remove_columns="text")


torch.manual_seed(0)  # of the model's first weights
small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=len(WORDS), max_position_embeddings=LENGTH, **small))

data = {shop: reviews([shop], 150) for shop in THINGS}
task = wt.tasks.torch(model, partitions=data, test=reviews(list(THINGS), 300))  # no loss: the model's own counts
graph, stop, rarely = wt.graphs.complete(len(data)), wt.Stop(iterations=150), wt.Evaluate(every=75)
run = wt.train(task, wt.MultiWalk(walks=2), graph, optimizer=wt.Adam(lr=0.003), stop=stop, evaluate=rarely)
print(run.history[["iteration", "train_loss", "test_accuracy"]].round(2).to_string(index=False))

for text in ("this opera was really clever", "the novel is not lovely", "the song was not awful"):
    with torch.no_grad():  # run.model is a BertForSequenceClassification, with the weights that were learned
        liked = bool(run.model(**{name: torch.tensor(ids) for name, ids in tokens([text]).items()}).logits.argmax())
    print(f"{text}: {'liked' if liked else 'not liked'}")
