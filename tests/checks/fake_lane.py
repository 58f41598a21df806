"""A lane of this process."""

from concurrent.futures import Future


class FakeLane:
    """Calls functions at once; `BrokenExecutor` from one ends it, as the end of a process would."""

    opened: list["FakeLane"]

    def __init__(self) -> None:
        self.ended = False
        type(self).opened.append(self)

    def submit(self, function, /, *arguments):
        assert not self.ended, "a lane that has ended gets no work"
        future = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def end(self) -> None:
        self.ended = True
