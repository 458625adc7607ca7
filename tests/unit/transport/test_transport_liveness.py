from anchorage.transport.liveness import LivenessRegistry


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_not_heard_of_in_time_is_stuck() -> None:
    time = Time()
    liveness = LivenessRegistry(time)
    assert liveness.describe_overdue() == ""
    liveness.expect("the session", 10)
    liveness.expect("the renewal", 30)
    time.now = 110.0
    assert liveness.describe_overdue() == ""
    time.now = 115.0
    assert liveness.describe_overdue() == "the session is overdue by 5 s"
    liveness.expect("the session", 10)
    assert liveness.describe_overdue() == ""
    time.now = 135.0
    assert liveness.describe_overdue() == "the session is overdue by 10 s; the renewal is overdue by 5 s"


def test_what_rests_is_not_expected() -> None:
    time = Time()
    liveness = LivenessRegistry(time)
    liveness.expect("the session", 10)
    liveness.rest("the session")
    liveness.rest("somebody else")
    time.now = 1e6
    assert liveness.describe_overdue() == ""
