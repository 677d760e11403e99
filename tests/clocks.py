"""A clock that tests set, in seconds."""


class Clock:
    """Stands still at `time`."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time
