"""Image tasks: the published files or a clear error; ResNet-20 as the paper has it; crop and flip by key alone."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.learning import plain
from walktalk.core.errors import DataError, ModelError
from walktalk.learning import Arithmetic, OptimizerSpec, Task, Trainer, TrainingRows, data, tasks
from walktalk.learning import data as files
from walktalk.learning.data import RECORD, CropAndFlip, cifar_batch, idx
from walktalk.learning.models import resnet20
from walktalk.learning.stacked import SequentialModel, TracedModel


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Files in CIFAR-10's and MNIST's formats, a few samples each, with their sums as if they had been published."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    datasets = {}
    for dataset in data.DATASETS.values():
        here = folder / dataset.folder
        here.mkdir()
        for name in dataset.files:
            (here / name).write_bytes(content(name, rng))
        sums = {name: hashlib.md5((here / name).read_bytes()).hexdigest() for name in dataset.files}
        datasets[dataset.name] = replace(dataset, files=sums)
    return folder, datasets


def content(name: str, rng: np.random.Generator) -> bytes:
    if name.endswith(".bin"):
        records = rng.integers(0, 256, (60, RECORD), dtype=np.uint8)
        records[:, 0] = np.arange(60) % 10
        return records.tobytes()
    count = 200 if name.startswith("train") else 50
    if "labels" in name:
        return gzip.compress(
            b"\x00\x00\x08\x01" + count.to_bytes(4, "big") + bytes(np.arange(count, dtype=np.uint8) % 10)
        )
    shape = (count, 28, 28)
    head = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in shape)
    return gzip.compress(head + rng.integers(0, 256, shape, dtype=np.uint8).tobytes())


@pytest.fixture
def at_home(made, monkeypatch):
    folder, datasets = made
    monkeypatch.setenv("WALKTALK_DATA", str(folder))
    for name in datasets:
        module = "mnist" if name == "fashion_mnist" else name
        monkeypatch.setattr(import_module(f"walktalk.learning.tasks.{module}"), name.upper(), datasets[name])
    return folder, datasets


# -- files ------------------------------------------------------------------------------------------------------------


def test_nothing_there(monkeypatch, tmp_path):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    for make in (tasks.cifar10, tasks.fashion_mnist):
        with pytest.raises(DataError, match=r"no file of .*walktalk data get"):
            make(nodes=2)
    with pytest.raises(DataError, match=r"task.folder: no file of cifar10"):
        tasks.build("cifar10", 2, 0, folder=str(tmp_path / "nowhere"))


def test_a_missing_and_a_damaged_file(made, tmp_path):
    folder, datasets = made
    dataset = datasets["cifar10"]
    for name in dataset.files:
        (tmp_path / name).write_bytes((folder / dataset.folder / name).read_bytes())
    files.check(dataset, tmp_path)
    damaged = tmp_path / "data_batch_3.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x00")
    with pytest.raises(DataError, match=r"data_batch_3.bin is damaged or not the published file \(MD5"):
        files.check(dataset, tmp_path)
    damaged.unlink()
    with pytest.raises(DataError, match=r"data_batch_3.bin is missing"):
        files.check(dataset, tmp_path)


def test_get_from_a_folder(made, tmp_path, monkeypatch):
    folder, datasets = made
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path / "home"))
    said: list[str] = []
    for source in (folder, folder / "cifar-10-batches-bin"):  # the folder itself, or the one around it
        here = files.fetch(datasets["cifar10"], str(source), said.append)
        assert sorted(p.name for p in here.iterdir()) == sorted(datasets["cifar10"].files)
    assert files.fetch(datasets["cifar10"], None, said.append) == here  # there already: nothing is fetched
    assert "already" in said[-1]
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["cifar-10-batches-bin"]  # no leftovers


def test_an_address_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    gone = replace(data.DATASETS["cifar10"], urls=((tmp_path / "gone.tar.gz").as_uri(),))
    with pytest.raises(DataError, match=r"cannot be fetched .*--from FOLDER"):
        files.fetch(gone)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_is_checked_and_only_what_is_wanted_is_unpacked(made, tmp_path, monkeypatch):
    folder, datasets = made
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")
        tar.add(__file__, "../../escape.py")
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path / "home"))
    dataset = replace(datasets["cifar10"], urls=(archive.as_uri(),), archive_md5=files.md5(archive))
    here = files.fetch(dataset)
    assert sorted(p.name for p in here.iterdir()) == sorted(dataset.files)
    with pytest.raises(DataError, match=r"cifar.tar.gz is damaged .*fetch it once more from file:"):
        files.fetch(replace(dataset, archive_md5="0" * 32, folder="other"))


def test_an_archive_that_was_fetched_elsewhere(made, tmp_path, monkeypatch):
    folder, datasets = made
    archive = tmp_path / "elsewhere" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")
    dataset = replace(datasets["cifar10"], archive_md5=files.md5(archive))
    for source in (archive, archive.parent):  # the archive itself, or the folder that it is in
        monkeypatch.setenv("WALKTALK_DATA", str(tmp_path / f"home-{source.name}"))
        here = files.fetch(dataset, str(source))
        assert sorted(p.name for p in here.iterdir()) == sorted(dataset.files)
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz is damaged or another archive"):
        files.fetch(replace(dataset, archive_md5="0" * 32), str(archive))
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    with pytest.raises(DataError, match="which no data set here has"):
        files.fetch(dataset, str(archive))
    with pytest.raises(DataError, match=r"no file of cifar10 in .*; it should hold cifar-10-binary.tar.gz, or data_"):
        files.fetch(dataset, str(tmp_path))
    with pytest.raises(DataError, match=r"is a file; name the folder with train-images"):
        files.fetch(datasets["fashion_mnist"], str(archive))


def test_a_damaged_file_at_home_is_fetched_again(made, tmp_path, monkeypatch):
    folder, datasets = made
    monkeypatch.setenv("WALKTALK_DATA", str(tmp_path))
    addresses = tuple((folder / "fashion-mnist" / name).as_uri() for name in datasets["fashion_mnist"].files)
    dataset = replace(datasets["fashion_mnist"], urls=addresses)
    here = files.fetch(dataset)
    damaged = here / "t10k-labels-idx1-ubyte.gz"
    damaged.write_bytes(b"not it")
    said: list[str] = []
    files.fetch(dataset, None, said.append)
    files.check(dataset, here)
    assert "is damaged or not the published file" in said[0]
    assert said[0].endswith("fetching it all again")
    wrong = replace(dataset, files={**dataset.files, damaged.name: "0" * 32}, folder="other")
    with pytest.raises(DataError, match=rf"^{damaged.name} from file:.* is damaged"):  # and not where it lay meanwhile
        files.fetch(wrong)


def test_a_file_that_cannot_be_read(made, monkeypatch):
    def denied(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    folder, datasets = made
    monkeypatch.setattr(files, "_checked", {})
    monkeypatch.setattr("pathlib.Path.open", denied)
    with pytest.raises(DataError, match=r"folder: .* cannot be read \(Permission denied\); see that you may read it"):
        files.locate(datasets["cifar10"], str(folder))


def test_broken_formats(tmp_path):
    broken = tmp_path / "x.bin"
    broken.write_bytes(b"abc")
    with pytest.raises(DataError, match="3 bytes are not whole records"):
        cifar_batch(broken)
    for raw in (b"\x00\x00\x0d\x01abcd", b"\x00\x00\x08\x01\x00\x00\x00\x09abc"):
        broken.write_bytes(gzip.compress(raw))
        with pytest.raises(DataError):
            idx(broken)


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_cifar10(at_home):
    task = tasks.cifar10(nodes=5, alpha=1.0)
    assert task.inputs.shape == (300, 3, 32, 32)
    assert task.test[0].shape == (60, 3, 32, 32)
    assert sum(map(len, task.parts)) == 300
    raw = np.fromfile(at_home[0] / "cifar-10-batches-bin" / "data_batch_2.bin", dtype=np.uint8).reshape(-1, RECORD)
    red = raw[0, 1:1025].reshape(32, 32) / 255.0  # the 61st sample
    assert torch.allclose(task.inputs[60, 0], torch.tensor((red - 0.4914) / 0.2470, dtype=torch.float32), atol=1e-5)
    assert int(task.targets[60]) == raw[0, 0]
    assert len(tasks.cifar10(nodes=5, samples=40, augment=False).inputs) == 40


def test_fashion_mnist(at_home):
    task = tasks.fashion_mnist(nodes=4, labels_per_node=3)
    assert task.inputs.shape == (200, 1, 28, 28)
    trainer = Trainer(task, batch_size=8, local_steps=2)
    assert type(trainer.model) is SequentialModel  # on a CPU
    rows = torch.stack([trainer.initial_row(k) for k in (0, 1)])
    trained, _ = trainer.train(TrainingRows(rows, torch.tensor([0, 1]), torch.tensor([3, 4]), torch.full((2,), 0.05)))
    assert torch.isfinite(trained).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"samples": 0}, "task.samples: 0"),
        ({"norm": "layer"}, "layer"),
        ({"augment": 3}, "task.augment: 3"),
        ({"alpha": 1.0, "labels_per_node": 2}, "exclude each other"),
        ({"folder": 3}, "task.folder: 3"),
    ],
)
def test_impossible_settings(at_home, settings, words):
    with pytest.raises((DataError, ModelError), match=words):
        tasks.build("cifar10", 4, 0, **settings)


# -- ResNet-20 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet20_has_the_papers_size(norm):
    assert sum(p.numel() for p in resnet20(norm=norm).parameters()) == 269_722


def test_group_norm_has_as_many_groups_as_one_says():
    norms = [m for m in resnet20(norm="group", groups=2).modules() if isinstance(m, torch.nn.GroupNorm)]
    assert {m.num_groups for m in norms} == {2}
    with pytest.raises(ModelError, match="groups: 3 is not possible"):
        resnet20(norm="group", groups=3)


def stacked_and_plain(norm, width, size, batch, seed):
    """A stacked ResNet-20 with its rows' gradients and statistics, and those of plain modules on the same batches."""
    torch.manual_seed(seed)
    module, inputs, labels = resnet20(norm=norm), plain.images(16, 3, size, size), plain.classes(16, count=10)
    model = TracedModel(module, functional.cross_entropy)
    models = plain.copies(module, width, seed)
    rows, layout = torch.stack([plain.numbers(m) for m in models]), model.layout
    before = torch.stack([m.eval()(inputs) for m in models]).detach()
    plain.close(model.outputs(rows, inputs), before, 1e-4)
    buffers = rows[:, layout.parameter_width :].clone()
    picks = plain.classes(width, batch, seed=5, count=16)
    batches = [(inputs[pick], labels[pick]) for pick in picks]
    margins = [plain.margin(m, x) for m, (x, _) in zip(models, batches, strict=True)]
    wave = model.wave(layout.spread_out(rows[:, : layout.parameter_width]), buffers, torch.arange(width))
    found = layout.gather(wave(inputs[picks], labels[picks], 0), width)
    expected = torch.stack(
        [plain.gradient(m.train(), functional.cross_entropy, *given) for m, given in zip(models, batches, strict=True)]
    )
    statistics = torch.stack([plain.numbers(m) for m in models])[:, layout.parameter_width :]
    return found, expected, torch.tensor(margins), (buffers, statistics)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_stacked_resnet20_has_the_gradients_of_a_plain_loop_in_every_row(norm):
    """Where no ReLU is within rounding of its kink: there a gradient has no value to agree on. On small images and
    batches most rows are like that, which is looked up in float64.
    """
    found, expected, margins, (buffers, statistics) = stacked_and_plain(norm, width=12, size=8, batch=2, seed=1)
    smooth = margins > 1e-5  # of what a layer puts out; rounding is a tenth of that
    assert int(smooth.sum()) >= 6, margins
    plain.close(found[smooth], expected[smooth], 1e-4)
    if norm == "batch":
        plain.close(buffers, statistics, 1e-5)


@pytest.mark.parametrize(("norm", "width"), [("batch", 1), ("batch", 5), ("group", 5)])
def test_stacked_resnet20_has_the_gradients_of_a_plain_loop_at_full_size(norm, width):
    """Among two million ReLUs a row some are always within rounding of 0; the whole wave is held to 1e-4 all the same,
    and no row may be off by more than such flips can do (a plain loop differs from itself by as much in another order).
    """
    found, expected, _, (buffers, statistics) = stacked_and_plain(norm, width, size=32, batch=8, seed=0)
    plain.close_but_for_kinks(found, expected, 1e-4)
    if norm == "batch":
        plain.close(buffers, statistics, 1e-5)


def test_resnet20_starts_as_he_has_it():
    task = Task("t", resnet20(), functional.cross_entropy, plain.images(4, 3, 32, 32), plain.classes(4), [np.arange(4)])
    model = task.initial(3)
    weight = model[-4].conv2.weight  # 64 channels of 3×3
    assert float(weight.detach().std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


@pytest.mark.parametrize("channels_last", [False, True])
def test_sixteen_bits_and_channels_last_stay_close(channels_last):
    inputs, labels = plain.images(16, 3, 32, 32), plain.classes(16, count=10)
    task = Task("t", resnet20(norm="group"), functional.cross_entropy, inputs, labels, [np.arange(16)])
    results = []
    for arithmetic in (
        Arithmetic(),
        Arithmetic("bf16" if channels_last else "fp32", channels_last=True),
        Arithmetic("bf16"),
    ):
        trainer = Trainer(
            task, batch_size=8, local_steps=2, optimizer=OptimizerSpec("sgd", 0.05), arithmetic=arithmetic
        )
        rows = torch.stack([trainer.initial_row(k) for k in (0, 1)])
        trained, _ = trainer.train(
            TrainingRows(rows, torch.tensor([0, 0]), torch.tensor([3, 4]), torch.full((2,), 0.05))
        )
        assert trained.dtype == torch.float32
        results.append(trained - rows)
    plain.close(results[1], results[0], 0.1 if channels_last else 0.01)
    plain.close(results[2], results[0], 0.1)


def test_an_unknown_precision():
    with pytest.raises(ModelError, match=r"training.precision: 'fp8' is not possible; allowed: fp32, tf32, bf16"):
        Arithmetic("fp8")


# -- crop and flip ----------------------------------------------------------------------------------------------------


def test_crop_and_flip_depend_on_the_key_alone():
    images, augment = plain.images(4, 8, 3, 32, 32), CropAndFlip()
    keys = torch.tensor([5, 6, 7, 5])
    together = augment(images, keys, 0)
    for k in range(4):
        assert torch.equal(augment(images[k : k + 1], keys[k : k + 1], 0), together[k : k + 1])
    same = images[:1].expand(4, -1, -1, -1, -1)
    out = augment(same, keys, 0)
    assert torch.equal(out[0], out[3])
    assert not torch.equal(out[0], out[1])
    assert not torch.equal(augment(same, keys, 1)[0], out[0])


def test_every_result_is_a_shifted_and_perhaps_mirrored_image():
    image = plain.images(1, 3, 32, 32)
    padded = functional.pad(image, (4, 4, 4, 4))
    possible = {}
    for flip in (False, True):
        source = padded.flip(3) if flip else padded
        for y in range(9):
            for x in range(9):
                possible[source[0, :, y : y + 32, x : x + 32].numpy().tobytes()] = (flip, y, x)
    batch = image.expand(40, 100, 3, 32, 32)
    out = CropAndFlip()(batch, torch.arange(40), 2).reshape(-1, 3, 32, 32)
    found = [possible.get(one.contiguous().numpy().tobytes()) for one in out]
    seen = [one for one in found if one is not None]
    assert len(seen) == len(found)
    assert len(set(seen)) == 162  # all of them come up
    assert abs(np.mean([flip for flip, _, _ in seen]) - 0.5) < 5 * 0.5 / 4000**0.5


@pytest.mark.slow
def test_the_real_cifar10(tmp_path):
    """Only where the files are (`walktalk data get cifar10`)."""
    try:
        task = tasks.cifar10(nodes=20, alpha=0.1)
    except DataError:
        pytest.skip("CIFAR-10 is not here")
    assert task.inputs.shape == (50_000, 3, 32, 32)
    assert np.bincount(task.labels).tolist() == [5000] * 10
    assert float(task.inputs.mean().abs()) < 0.01
    assert float(task.inputs.std()) == pytest.approx(1.0, abs=0.02)
