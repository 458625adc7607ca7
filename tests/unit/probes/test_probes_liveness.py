from anchorage.transport.liveness import LivenessRegistry


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_not_heard_of_in_time_is_stuck() -> None:
    time = Time()
    vitals = LivenessRegistry(time)
    assert vitals.stuck() == ""
    vitals.expect("the session", 10)
    vitals.expect("the renewal", 30)
    time.now = 110.0
    assert vitals.stuck() == ""
    time.now = 115.0
    assert vitals.stuck() == "the session is overdue by 5 s"
    vitals.expect("the session", 10)
    assert vitals.stuck() == ""
    time.now = 135.0
    assert vitals.stuck() == "the session is overdue by 10 s; the renewal is overdue by 5 s"


def test_what_rests_is_not_expected() -> None:
    time = Time()
    vitals = LivenessRegistry(time)
    vitals.expect("the session", 10)
    vitals.rest("the session")
    vitals.rest("somebody else")
    time.now = 1e6
    assert vitals.stuck() == ""
