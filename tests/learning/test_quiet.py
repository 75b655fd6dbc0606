"""What libraries say while they load does not stand before the one line that counts."""

from __future__ import annotations

import logging

from walktalk.learning.models.language import quietly


def test_retries_of_the_hub_are_not_shown_and_afterwards_all_is_as_before(caplog):
    talker = logging.getLogger("huggingface_hub.utils")
    logging.getLogger("huggingface_hub").setLevel(logging.INFO)
    with caplog.at_level(logging.INFO), quietly():
        talker.warning("retry 5 of 5")
        talker.error("this one counts")
    talker.warning("said later")
    assert [record.message for record in caplog.records] == ["this one counts", "said later"]
