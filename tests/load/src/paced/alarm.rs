//! Waking a task of an async runtime when it is due. The runtime's own timers are a millisecond coarse,
//! several times what is measured; a thread that wakes the runtime's costs more than the requests do.

use std::{io, time::Duration};

/// Wakes whoever waits for it: to some microseconds on Linux, to a millisecond elsewhere.
#[derive(Debug)]
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// An alarm of the runtime that this is called on.
    pub(super) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let interest = tokio::io::Interest::READABLE;
        #[expect(
            deprecated,
            reason = "an OwnedFd is the same open file for all its life"
        )]
        let timer = tokio::io::unix::AsyncFd::with_interest(timer, interest)?;
        Ok(Self { timer })
    }

    /// Returns once `left` is over.
    pub(super) async fn wait(&self, left: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // A timer that is set to nothing never goes off.
        let value = left.max(Duration::from_nanos(1));
        let value = Timespec::try_from(value).map_err(io::Error::other)?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut times = [0_u8; 8];
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut times)?));
            match read {
                Ok(read) => return read.map(drop),
                Err(_not_yet) => continue,
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// An alarm of the runtime that this is called on.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns once `left` is over.
    pub(super) async fn wait(&self, left: Duration) -> io::Result<()> {
        tokio::time::sleep(left).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn an_alarm_goes_off_each_time_and_never_too_early() {
        let alarm = Alarm::new().unwrap();
        for left in [Duration::ZERO, Duration::from_micros(300)].repeat(3) {
            let begun = Instant::now();
            alarm.wait(left).await.unwrap();
            assert!(begun.elapsed() >= left);
        }
    }
}
