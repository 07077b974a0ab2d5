//! The clock that leases are measured on: it counts suspend, which `Instant` does not.

use crate::background;
use std::time::Duration;
use tokio::runtime::EnterGuard;
use tokio::time::{Instant, Sleep, Timeout};

/// A moment on a [`Clock`], in nanoseconds since that clock's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);
    /// The clock's origin: before everything.
    pub const ORIGIN: Self = Self(0);

    /// The moment this many nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This much later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// This much earlier, at most back to the origin.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// How long from `earlier` until this moment; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Which clock an engine's leases are measured on.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Clock {
    /// The machine's, suspend included (CLOCK_BOOTTIME). Every real engine uses it.
    Boot,
    /// Tokio's, which a test may pause and advance; only for the memory engine. Counts from the instant given.
    Tokio(Instant),
}

impl Clock {
    /// Tokio's clock, counting from now on.
    pub fn tokio() -> Self {
        Self::Tokio(Instant::now())
    }

    /// The present moment.
    pub fn now(self) -> Moment {
        match self {
            Self::Boot => boot_now(),
            // One hour ahead of the origin, so that 'earlier than now' exists on a fresh clock, too.
            Self::Tokio(origin) => Moment(nanos(origin.elapsed() + Duration::from_secs(3600))),
        }
    }

    /// Resolves after this long.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub fn sleep(self, duration: Duration) -> Sleep {
        let _timers = self.enter_timers();
        tokio::time::sleep(duration)
    }

    /// The future's result, if it comes within the limit.
    ///
    /// Cancel safety: that of the future.
    pub fn timeout<F: Future>(self, limit: Duration, future: F) -> Timeout<F> {
        let _timers = self.enter_timers();
        tokio::time::timeout(limit, future)
    }

    /// Timers that are made meanwhile are the background's: the caller's runtime may have none, and tokio cannot say so without
    /// a panic. A clock that a test may pause is the caller's.
    fn enter_timers(self) -> Option<EnterGuard<'static>> {
        matches!(self, Self::Boot).then(|| background::handle().enter())
    }

    /// Resolves at the moment (or up to a suspend's length later: see `Alarm` for what must not be late).
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn sleep_until(self, moment: Moment) {
        if moment == Moment::NEVER {
            return std::future::pending().await;
        }
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            self.sleep(left).await;
        }
    }
}

fn boot_now() -> Moment {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    // Elsewhere the monotonic clock is the nearest thing; on macOS and the BSDs it counts suspend.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A timer for the end of leases. Unlike tokio's it goes off at once when the machine wakes from suspend.
pub(crate) struct Alarm {
    clock: Clock,
    #[cfg(target_os = "linux")]
    timer: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Alarm {
    /// A timer on this clock; it lives on the runtime it is made on.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            #[cfg(target_os = "linux")]
            timer: match clock {
                Clock::Boot => timer_on_boot_time(),
                Clock::Tokio(_) => None,
            },
        }
    }

    /// Resolves at the moment.
    pub(crate) async fn at(&self, moment: Moment) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &self.timer
            && moment != Moment::NEVER
        {
            return self.by_timer(timer, moment).await;
        }
        self.clock.sleep_until(moment).await;
    }

    #[cfg(target_os = "linux")]
    async fn by_timer(&self, timer: &tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>, moment: Moment) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let nanos = moment.as_nanos().max(1);
        let when = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (nanos / 1_000_000_000).try_into().unwrap_or(i64::MAX),
                tv_nsec: (nanos % 1_000_000_000) as _,
            },
        };
        if timerfd_settime(timer.get_ref(), TimerfdTimerFlags::ABSTIME, &when).is_err() {
            return self.clock.sleep_until(moment).await;
        }
        while self.clock.now() < moment {
            match timer.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return self.clock.sleep_until(moment).await,
            }
        }
    }
}

/// `None` (then tokio's timer serves) when the kernel gives us no descriptor.
#[cfg(target_os = "linux")]
fn timer_on_boot_time() -> Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags).ok()?;
    // The successor of this function is unsafe for the sake of types that could swap their descriptor; an
    // `OwnedFd` cannot, and this crate forbids unsafe code.
    #[allow(deprecated)]
    tokio::io::unix::AsyncFd::with_interest(timer, tokio::io::Interest::READABLE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_alarm_goes_off_at_its_moment_and_not_before() {
        let alarm = Alarm::new(Clock::Boot);
        for _ in 0..3 {
            let moment = Clock::Boot.now().plus(Duration::from_millis(5));
            alarm.at(moment).await;
            assert!(Clock::Boot.now() >= moment);
        }
        alarm.at(Moment::ORIGIN).await;
    }

    #[tokio::test(start_paused = true)]
    async fn tokios_clock_can_be_advanced() {
        let clock = Clock::tokio();
        let start = clock.now();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now().since(start), Duration::from_secs(5));
        Alarm::new(clock).at(start.plus(Duration::from_secs(60))).await;
        assert!(clock.now().since(start) >= Duration::from_secs(60));
    }

    #[test]
    fn moments_never_wrap() {
        assert_eq!(Moment::NEVER.plus(Duration::from_secs(1)), Moment::NEVER);
        assert_eq!(Moment::ORIGIN.minus(Duration::from_secs(1)), Moment::ORIGIN);
        assert_eq!(Moment::ORIGIN.since(Moment::NEVER), Duration::ZERO);
    }
}
