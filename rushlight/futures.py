"""`rushlight.futures`: values that come later, under PyTorch's names.

A `Future` is completed once, by `set_result` or `set_exception`, from any thread; callbacks run in
the thread that completes it, in the order in which they were added, or at once when it is done. A
callback that raises stops neither that thread nor the callbacks after it: the error is printed.
"""

import sys
import threading
import traceback
import types

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that may not be there yet. `devices` is taken and not needed: nothing is queued."""

    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, *, devices=None):
        self._lock = threading.Condition()
        self._done, self._value, self._error, self._callbacks = False, None, None, []

    def done(self):
        """Whether a result or an exception is there."""
        return self._done

    def wait(self):
        """The value, when it is there; raises the exception that was set instead."""
        with self._lock:
            self._lock.wait_for(lambda: self._done)
        return self.value()

    def value(self):
        """The value of a future that is done; RuntimeError for one that is not."""
        if not self._done:
            raise RuntimeError("[Future.value] the future is not done; wait() waits for it")
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, callback):
        """A future of what `callback(self)` returns or raises, once this one is done."""
        after = Future()

        def go_on(done):
            try:
                after.set_result(callback(done))
            except Exception as error:
                after.set_exception(error)

        self.add_done_callback(go_on)
        return after

    def add_done_callback(self, callback):
        """Calls `callback(self)` once this future is done."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _call(self, callback):
        try:
            callback(self)
        except Exception:
            print(f"[Future] a callback raised, {callback!r}:", file=sys.stderr)
            traceback.print_exc()

    def set_result(self, result):
        """Completes the future; RuntimeError where it is done already."""
        self._complete(result, None)

    def set_exception(self, result):
        """Completes the future with an exception, which wait() and value() raise."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"[Future.set_exception] {result!r} is no exception")
        self._complete(None, result)

    def _complete(self, value, error):
        with self._lock:
            if self._done:
                raise RuntimeError("[Future] the future is completed already")
            self._done, self._value, self._error = True, value, error
            callbacks, self._callbacks = self._callbacks, []
            self._lock.notify_all()
        for callback in callbacks:
            self._call(callback)


def collect_all(futures):
    """A future of the list of futures, done when each of them is."""
    futures = list(futures)
    every = Future()
    left, lock = [len(futures)], threading.Lock()

    def one_less(_):
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            every.set_result(futures)

    if not futures:
        every.set_result(futures)
    for future in futures:
        future.add_done_callback(one_less)
    return every


def wait_all(futures):
    """The values of the futures, in order; raises the first exception among them."""
    return [future.wait() for future in collect_all(futures).wait()]
