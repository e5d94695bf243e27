//! Limits of live reads. Scans have limits of their own, so they take nothing from admission. Those who wait are told
//! apart, so that many reads of one leave permits to the others.

use std::{sync::Arc, time::Duration};

use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};
use anteroom_wire::{beneficiary::Beneficiary, live::LiveRequest};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{LiveArgs, bucket::Bucket};

/// The reads in progress, those that wait for their permits included.
pub(super) const WAITING_MAX: u32 = 1_024;

/// The most of [`WAITING_MAX`] for one beneficiary.
const BENEFICIARY_WAITING_MAX: u32 = WAITING_MAX / 4;

/// The reads of images at a time. Whoever writes a Pod names the registry, and a slow one holds up reads of images alone.
const IMAGE_READS_MAX: u32 = 12;

/// The divisor of admission's limits that gives the separate limits of scans, at least 1.
const SCANS_PART: u32 = 4;

/// The share of a call's time that is kept for the reply, as a divisor: a read that has no place is to say so in time.
const REPLY_SHARE: u32 = 10;

/// The most that is kept for that.
const REPLY_MAX: Duration = Duration::from_millis(50);

/// Returns the latest time for the read of a call to begin, which is given so long from `begun` on.
pub(super) fn latest_begin(begun: Instant, given: Duration) -> Instant {
    begun + given.saturating_sub(REPLY_MAX.min(given / REPLY_SHARE))
}

/// The limits of live reads for admission, or for scans.
///
/// A read holds its permit while it waits for its turn. So a reader that begins many reads at once has no more of them
/// in the queue than it may hold permits.
#[derive(Debug)]
pub(super) struct Limits {
    bucket: Mutex<Bucket>,
    permits: Permits,
    per_second: u32,
}

/// The reads that may be under way at a time, shared fairly by those that they are for.
#[derive(Debug)]
pub(super) struct Permits {
    quota: Arc<FairQuota<Beneficiary>>,
    at_once: u32,
    /// The kind of reads, in the plural.
    reads: &'static str,
}

/// A read's claim to a permit: the party that it is for, and the latest time for it to begin.
#[derive(Clone, Debug)]
pub(super) struct ReadClaim {
    pub(super) beneficiary: Beneficiary,
    pub(super) deadline: Instant,
}

impl ReadClaim {
    pub(super) fn of(request: &LiveRequest, deadline: Instant) -> Self {
        Self {
            beneficiary: request.beneficiary(),
            deadline,
        }
    }

    /// Returns whether other reads for the same namespace use up the part that it has of a full quota.
    pub(super) fn is_over_part(&self, full: QuotaFull) -> bool {
        full.over_part && self.beneficiary.is_of_namespace()
    }
}

impl Limits {
    /// For admission.
    pub(super) fn of_admission(args: &LiveArgs) -> Self {
        Self::new(args.live_reads_per_second, args.live_read_concurrency)
    }

    /// For scans.
    pub(super) fn of_scans(args: &LiveArgs) -> Self {
        let part = |whole: u32| (whole / SCANS_PART).max(1);
        Self::new(
            part(args.live_reads_per_second),
            part(args.live_read_concurrency),
        )
    }

    fn new(per_second: u32, at_once: u32) -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(per_second, Instant::now())),
            permits: Permits::new(at_once, "live reads"),
            per_second,
        }
    }

    /// Waits until a read may begin: for a permit, and then for its turn.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where that is after the claim's deadline.
    pub(super) async fn begin(
        &self,
        claim: &ReadClaim,
    ) -> Result<FairPermit<Beneficiary>, FactError> {
        let permit = self.permits.admit(claim).await?;
        self.turn(claim, &permit).await?;
        Ok(permit)
    }

    /// Waits for a turn, of which there is a limited number in a second. `permit`: the permit with which the read waits.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where that is after the claim's deadline.
    pub(super) async fn turn(
        &self,
        claim: &ReadClaim,
        permit: &FairPermit<Beneficiary>,
    ) -> Result<(), FactError> {
        let now = Instant::now();
        let most = claim.deadline.saturating_duration_since(now);
        let wait = self.bucket.lock().take(now, most);
        let wait = wait.ok_or_else(|| {
            let over_part = permit.is_over_part() && claim.beneficiary.is_of_namespace();
            let message = format!("{} live reads are begun in a second", self.per_second);
            busy(&message, over_part)
        })?;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// The part that the policies of namespaces have in the live reads of admission.
#[derive(Debug)]
pub(super) struct NamespaceQuota(Arc<FairQuota<String>>);

impl NamespaceQuota {
    pub(super) fn new(args: &LiveArgs) -> Self {
        Self(FairQuota::of_namespaces(args.live_read_concurrency))
    }

    /// Waits until a policy of this namespace may begin one more read.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where that is after `deadline`.
    pub(super) async fn admit(
        &self,
        namespace: &str,
        deadline: Instant,
    ) -> Result<FairPermit<String>, FactError> {
        let permit = self.0.take(namespace.to_owned(), 1, deadline).await;
        permit.map_err(|QuotaFull { held_max, over_part }| {
            let message = format!(
                "{held_max} live reads are under way, and policies of namespace `{namespace}` may begin no more"
            );
            busy(&message, over_part)
        })
    }
}

impl Permits {
    /// Permits for reads of images.
    pub(super) fn of_images() -> Self {
        Self::new(IMAGE_READS_MAX, "reads of images")
    }

    /// Permits to wait for others.
    pub(super) fn of_waiting() -> Self {
        Self {
            quota: FairQuota::new(WAITING_MAX.into(), BENEFICIARY_WAITING_MAX.into()),
            at_once: WAITING_MAX,
            reads: "live reads, waiting ones included,",
        }
    }

    fn new(at_once: u32, reads: &'static str) -> Self {
        Self {
            quota: FairQuota::new(at_once.into(), at_once.into()),
            at_once,
            reads,
        }
    }

    /// Takes a permit now.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there is none.
    pub(super) fn try_admit(
        &self,
        beneficiary: Beneficiary,
    ) -> Result<FairPermit<Beneficiary>, FactError> {
        let is_of_namespace = beneficiary.is_of_namespace();
        let permit = self.quota.try_take(beneficiary, 1);
        permit.map_err(|full| self.busy(full, full.over_part && is_of_namespace))
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there is none before the claim's deadline.
    pub(super) async fn admit(
        &self,
        claim: &ReadClaim,
    ) -> Result<FairPermit<Beneficiary>, FactError> {
        let beneficiary = claim.beneficiary.clone();
        let permit = self.quota.take(beneficiary, 1, claim.deadline).await;
        permit.map_err(|full| self.busy(full, claim.is_over_part(full)))
    }

    fn busy(&self, full: QuotaFull, over_part: bool) -> FactError {
        let (held_max, reads) = (full.held_max, self.reads);
        let message = match held_max == u64::from(self.at_once) {
            true => format!("{held_max} {reads} are under way"),
            false => format!("{held_max} {reads} are under way for the same namespace"),
        };
        busy(&message, over_part)
    }
}

/// The error of a read that begins too late. `over_part`: other reads for the same namespace use up its part.
pub(super) fn busy(message: &str, over_part: bool) -> FactError {
    FactError::LiveReadBusy {
        message: message.to_owned(),
        over_part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(limit: u32) -> LiveArgs {
        LiveArgs {
            live_reads_per_second: limit,
            live_read_concurrency: limit,
            ..LiveArgs::default()
        }
    }

    /// A claim for requests in a namespace that policies of the cluster judge.
    fn claim(namespace: &str, deadline: Instant) -> ReadClaim {
        ReadClaim {
            beneficiary: Beneficiary::Requests(namespace.to_owned()),
            deadline,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    #[test]
    fn a_read_without_a_place_says_so_before_its_caller_gives_up() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        for (given, left) in [(0, 0), (10, 9), (500, 450), (10_000, 9_950)] {
            assert_eq!(latest_begin(begun, ms(given)), begun + ms(left));
        }
    }

    #[test]
    fn scans_have_a_quarter_and_one_at_least() {
        for (whole, part) in [(100, 25), (7, 1), (1, 1), (8, 2)] {
            let scans = Limits::of_scans(&args(whole));
            assert_eq!(
                (scans.per_second, scans.permits.at_once),
                (part, part),
                "{whole}"
            );
            assert_eq!(Limits::of_admission(&args(whole)).permits.at_once, whole);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_a_quarter_and_many_leave_some_to_a_later_one() {
        let quota = NamespaceQuota::new(&args(16));
        let mut held = Vec::new();
        for namespace in ["a", "b", "c"] {
            while let Ok(permit) = quota.admit(namespace, soon()).await {
                held.push(permit);
            }
        }
        assert_eq!(held.len(), 10, "of 12");
        let full = quota.admit("a", soon()).await.map(drop).unwrap_err();
        assert!(full.to_string().contains("of namespace `a`"), "{full}");
        assert!(full.is_over_part());
        quota.admit("d", soon()).await.map(drop).unwrap();
    }

    #[test]
    fn one_beneficiary_that_waits_leaves_permits_to_wait_to_the_others() {
        let waiting = Permits::of_waiting();
        let of = |name: &str| Beneficiary::Policies(name.to_owned());
        let held: Vec<_> = std::iter::from_fn(|| waiting.try_admit(of("a")).ok()).collect();
        assert_eq!(held.len(), BENEFICIARY_WAITING_MAX as usize);
        let full = waiting.try_admit(of("a")).map(drop).unwrap_err();
        assert!(
            full.to_string().contains("for the same namespace") && full.is_over_part(),
            "{full}"
        );
        for other in [
            of("b"),
            claim("a", Instant::now()).beneficiary,
            Beneficiary::Scans,
        ] {
            assert!(waiting.try_admit(other).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_reads_for_one_namespace_leaves_turns_to_the_others() {
        let limits = Arc::new(Limits::new(100, 16));
        // All turns of the first second.
        for _ in 0..100 {
            limits.begin(&claim("a", soon())).await.map(drop).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let flood: Vec<_> = (0..1_000)
            .map(|_| {
                let limits = Arc::clone(&limits);
                tokio::spawn(async move {
                    let _permit = limits.begin(&claim("a", deadline)).await?;
                    Ok::<_, FactError>(())
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let begun = Instant::now();
        limits.begin(&claim("b", deadline)).await.map(drop).unwrap();
        assert!(
            begun.elapsed() <= Duration::from_millis(200),
            "{:?}",
            begun.elapsed()
        );
        flood.iter().for_each(tokio::task::JoinHandle::abort);
    }

    /// Registries that never answer hold their permits for as long as a read may take.
    #[tokio::test(start_paused = true)]
    async fn slow_images_of_one_namespace_leave_permits_to_the_others() {
        let images = Permits::of_images();
        let mut held = Vec::new();
        while let Ok(permit) = images.admit(&claim("a", soon())).await {
            held.push(permit);
        }
        let full = images
            .admit(&claim("a", soon()))
            .await
            .map(drop)
            .unwrap_err();
        assert!(full.is_over_part());
        let full = full.to_string();
        assert!(
            full.contains("8 reads of images are under way for the same namespace"),
            "{full}"
        );
        for namespace in ["b", "c", ""] {
            held.push(images.admit(&claim(namespace, soon())).await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_permit_or_a_turn_it_is_busy() {
        let limits = Limits::new(1, 1);
        let permit = limits.begin(&claim("a", soon())).await.unwrap();
        let full = limits.begin(&claim("b", soon())).await.map(drop);
        let full = full.unwrap_err();
        assert!(!full.is_over_part());
        let full = full.to_string();
        assert!(full.contains("1 live reads are under way"), "{full}");
        drop(permit);
        let late = limits.begin(&claim("b", soon())).await.map(drop);
        let late = late.unwrap_err();
        assert!(!late.is_over_part());
        let late = late.to_string();
        assert!(late.contains("begun in a second"), "{late}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        limits.begin(&claim("b", soon())).await.map(drop).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_without_a_turn_says_whether_its_own_namespace_takes_the_permits() {
        let limits = Limits::new(1, 16);
        drop(limits.begin(&claim("other", soon())).await.unwrap());
        let mut held = Vec::new();
        for (permits, expected) in [(7, false), (1, true)] {
            for _ in 0..permits {
                held.push(limits.permits.admit(&claim("a", soon())).await.unwrap());
            }
            let late = limits.begin(&claim("a", soon())).await.map(drop);
            assert_eq!(late.unwrap_err().is_over_part(), expected);
        }
        let users = claim("", soon());
        drop(held);
        let flood: Vec<_> = std::iter::from_fn(|| {
            let permit = limits.permits.try_admit(users.beneficiary.clone());
            permit.ok()
        })
        .collect();
        let late = limits.begin(&users).await.map(drop);
        assert!(!late.unwrap_err().is_over_part(), "it is of all users");
        drop(flood);
    }
}
