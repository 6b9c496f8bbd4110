"""A file descriptor that only its owner holds: closed on exec, and also in children forked without exec.

Locks and pipe ends would otherwise live on in such children, and say that the owner lives.
"""

import os
import weakref


class OwnedDescriptor:
    """Owns one open descriptor until ``close``. Not thread-safe."""

    def __init__(self, number: int) -> None:
        self.number = number
        reference = weakref.ref(self)

        def close_copy() -> None:
            owned = reference()
            if owned is not None:
                owned.close()

        os.register_at_fork(after_in_child=close_copy)

    def close(self) -> None:
        """Idempotent."""
        if self.number >= 0:
            os.close(self.number)
            self.number = -1
