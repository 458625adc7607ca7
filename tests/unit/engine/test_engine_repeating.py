"""RSCFed's silo that several groups drew: every time from the same model, with momentum and teacher a time further (methods reference, 6.10)."""

from dataclasses import replace

import numpy as np
import pytest
from learning_party import Party, given, method_of

from anchorage.api.errors import AnchorageError, transfer
from anchorage.engine.repeating import RepeatingLearner, repetitions_of
from anchorage.pieces.weighting.sub_consensus import SubConsensus
from anchorage.transport.messages import MOST_REPETITIONS, Task, TaskKind
from anchorage.transport.tensors.chunks import Manifest


@pytest.mark.parametrize("labels", ["None", "All"])
def test_each_time_begins_with_the_model_and_ends_with_a_state_further(labels, tmp_path):
    party = Party(method_of("RSCFed"), given(labels), tmp_path / "one", labels=labels)
    party.train(1)
    party.learner = RepeatingLearner(party.learner)
    announcement = party.train(2, {}, repetitions=2)
    first, second = np.split(party.update, 2)
    state = party.learner._learner._state
    teachers = [int(state.of(number).get("teacher/steps", 0)) for number in (1, 2)]
    assert announcement.update == Manifest.of(party.server.up.digest, party.update)
    assert teachers[1] == 3 * teachers[0] and (teachers[0] > 0) == (labels == "None")
    assert not np.array_equal(first, second)

    assert party.train(2, {}, repetitions=2).update == announcement.update, "a task that is done again"
    once = party.train(2, {})
    assert once.update == Manifest.of(party.server.up.digest, first)
    alone = replace(party.task(2, {}), repetition=1)
    repetition = party.learner._learner.train(alone, party.model.buffer(), party._out, lambda done, total: 0)
    assert repetition.update == Manifest.of(party.server.up.digest, second)


@pytest.mark.parametrize("repetitions", [0, -1, MOST_REPETITIONS + 1, 2**31])
def test_a_server_cannot_ask_for_more_than_a_method_may(repetitions):
    task = Task("2.train.ab", TaskKind.TRAIN, 2, Manifest("ab", 0, ()), repetitions=repetitions)
    with pytest.raises(AnchorageError, match="allowed are 1 to 100") as caught:
        repetitions_of(task)
    assert caught.value.failure is transfer.MALFORMED_MESSAGE


def test_a_method_may_ask_for_all_that_silos_allow():
    assert SubConsensus(groups=MOST_REPETITIONS).groups == MOST_REPETITIONS
    with pytest.raises(ValueError, match="less than or equal"):
        SubConsensus(groups=MOST_REPETITIONS + 1)
