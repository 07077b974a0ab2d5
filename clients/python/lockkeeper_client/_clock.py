"""The clock that deadlines are measured on: one that goes on while the machine is suspended, where there is one."""

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds since some moment in the past."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()


#: The longest sleep of those who wait for a deadline: sleeps do not count the time that the machine is suspended.
LONGEST_SLEEP = 0.5
