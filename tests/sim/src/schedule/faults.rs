//! Faults, from their begin to their end.

use anteroom_bus::local::Chances;
use anteroom_model::Revision;
use anteroom_simapi::{Fault as ApiFault, Matching};

use super::*;
use crate::cluster::webhooks_hold_views;

/// The part by which versions are raised after a restore.
const RAISED_BY: u64 = 1_000_000;

/// The time for which users rest after a restore that did not raise the versions. If the API server hands out a version
/// twice before a watcher looks, no client can tell.
const RESTS_AFTER_RESTORE: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// A fault begins.
    pub(super) async fn fault(&mut self, timed: &TimedFault) -> anyhow::Result<()> {
        self.note(&format!("{:?} for {:?}", timed.fault, timed.lasts));
        let faults = self.cluster.bus.faults();
        match timed.fault {
            Fault::Cut(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().cut();
                    self.told.cut(id);
                }
            }
            Fault::BusAway => faults.stop(),
            Fault::Kill { id, .. } => self.gone.extend(self.cluster.kill(id)),
            Fault::Stop { id, .. } => self.gone.extend(self.cluster.stop(id)),
            Fault::LogDeleted => faults.delete_log(),
            Fault::LogRemade => faults.remake_log(),
            Fault::Truncate { records } => {
                if let Some(last) = self.before_last(records).await {
                    self.log_is_shortened();
                    faults.truncate_log(last);
                }
            }
            Fault::OtherHistory { records } => {
                if let Some(last) = self.before_last(records).await {
                    self.log_is_shortened();
                    self.judge.lock().doubt_facts();
                    self.told.doubt_all();
                    faults.replace_history(last);
                }
            }
            Fault::Lose { id, records } => self.lose(id, records),
            Fault::LoseInLog { back, records } => {
                if let Some(before) = self.before_last(back).await {
                    self.judge.lock().doubt_facts();
                    self.told.doubt_all();
                    faults.lose_in_log(before, records);
                }
            }
            Fault::Gap(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().gap();
                }
            }
            Fault::LaggingCopy(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().lag_copy();
                }
            }
            Fault::Lossy => {
                let chances = self.plan.chances;
                faults.set_chances(chances);
                // Nobody hears a process whose beats wait.
                self.told.lossy(chances.beat_lost.max(chances.beat_delayed));
                if chances.beat_delayed > 0.0 {
                    self.judge.lock().beats_wait();
                }
            }
            Fault::AppendsFail(number) => self.fail_appends(number, true),
            Fault::Full => {
                let size = self.cluster.bus.log_size().await;
                faults.limit_log(Some(size.map_or(4_096, |size| size.bytes + 512)));
            }
            Fault::ApiCut(number) => self.cut_api(number, true),
            _ => {
                for fault in self.api_faults(timed.fault) {
                    self.cluster.api.fault(fault)?;
                }
                if let Fault::Restore { back, raised } = timed.fault {
                    self.restore(back, raised)?;
                }
            }
        }
        Ok(())
    }

    /// The position before the last records of the log.
    async fn before_last(&self, records: u64) -> Option<Revision> {
        let head = self.cluster.bus.head().await.ok()?;
        Some(Revision(head.last.0.saturating_sub(records)))
    }

    /// The log is about to lose its last records, with the leases among them.
    fn log_is_shortened(&mut self) {
        self.hold_writers();
        self.writers.log_is_shortened();
    }

    /// The process reads some records of the log no more, and nobody is told.
    fn lose(&mut self, id: Id, records: u64) {
        let Some(process) = self.cluster.processes.get(&id) else {
            return;
        };
        process.faults().lose(records);
        match id.0 {
            // It reads policies by itself, and facts from replicas unless it holds them.
            Kind::Webhook => {
                self.told.doubt(id);
                if webhooks_hold_views() {
                    self.judge.lock().doubt_facts();
                }
            }
            Kind::Replica | Kind::Watcher => self.judge.lock().doubt_facts(),
        }
    }

    fn fail_appends(&self, number: u8, fail: bool) {
        let process = self.cluster.processes.get(&Id(Kind::Watcher, number));
        if let Some(process) = process {
            process.faults().fail_appends(fail);
        }
    }

    fn cut_api(&self, number: u8, cut: bool) {
        let process = self.cluster.processes.get(&Id(Kind::Watcher, number));
        if let Some(way) = process.and_then(|process| process.way.as_ref()) {
            way.send_replace(cut);
        }
    }

    fn api_faults(&self, fault: Fault) -> Vec<ApiFault> {
        let matching = Matching::default();
        match fault {
            Fault::ApiFails { status } => vec![ApiFault::Fail {
                matching,
                status,
                retry_after_seconds: None,
                count: None,
            }],
            Fault::ApiSlow { delay_ms } => vec![ApiFault::Delay { matching, delay_ms }],
            Fault::CutWatches { clean } => vec![ApiFault::CutWatches {
                resource: None,
                clean,
            }],
            Fault::StallWatches => vec![ApiFault::StallWatches { resource: None }],
            // Whoever watches has to notice.
            Fault::Compact => vec![
                ApiFault::Compact { resource: None },
                ApiFault::CutWatches {
                    resource: None,
                    clean: false,
                },
            ],
            Fault::Forbid => vec![ApiFault::Forbid {
                resource: INGRESSES.into(),
            }],
            _ => Vec::new(),
        }
    }

    fn restore(&mut self, back: u64, raised: bool) -> anyhow::Result<()> {
        let version = self.cluster.api.version().saturating_sub(back);
        if version >= self.base_version {
            let restored = self.cluster.api.fault(ApiFault::Restore {
                resource_version: version,
                raised_by: if raised { RAISED_BY } else { 0 },
            });
            if restored.is_ok() {
                if !raised {
                    self.rests_until = Instant::now() + RESTS_AFTER_RESTORE;
                }
                self.owners_changed();
                let policy = self.cluster.api.get(POLICIES, "", UNIQUE_HOST);
                let generation = policy.and_then(|of| of["metadata"]["generation"].as_u64());
                self.generation = generation.unwrap_or_default();
                self.judge.lock().unsay("the API server is restored");
                self.told.restored(self.generation);
            }
        }
        Ok(())
    }

    /// A fault ends.
    pub(super) fn mend_one(&mut self, timed: &TimedFault) {
        self.note(&format!("{:?} ends", timed.fault));
        let faults = self.cluster.bus.faults();
        match timed.fault {
            Fault::Cut(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().mend();
                }
                self.told.mended(id);
            }
            Fault::BusAway => faults.start(),
            Fault::Kill { id, renamed } | Fault::Stop { id, renamed } => self.restart(id, renamed),
            Fault::Lossy => {
                faults.set_chances(Chances::default());
                self.told.eased();
            }
            Fault::Lose { id, .. } => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().lose(0);
                }
            }
            Fault::LaggingCopy(id) => {
                if let Some(process) = self.cluster.processes.get(&id) {
                    process.faults().catch_copy_up();
                }
            }
            Fault::AppendsFail(number) => self.fail_appends(number, false),
            Fault::LoseInLog { .. } => self.read_again(),
            Fault::Full => faults.limit_log(None),
            Fault::ApiCut(number) => self.cut_api(number, false),
            Fault::ApiFails { .. } | Fault::ApiSlow { .. } | Fault::Forbid => {
                let _ = self.cluster.api.fault(ApiFault::Clear {});
            }
            Fault::StallWatches => {
                let _ = self
                    .cluster
                    .api
                    .fault(ApiFault::ResumeWatches { resource: None });
            }
            _ => {}
        }
    }

    /// All processes read the log from its start again, and so find out what it has lost.
    fn read_again(&self) {
        for process in self.cluster.processes.values() {
            process.faults().gap();
        }
    }

    fn restart(&mut self, id: Id, renamed: bool) {
        if self.cluster.processes.contains_key(&id) {
            return;
        }
        let name = self.gone.iter().rev().find(|gone| gone.id == id);
        let name = name.map(|gone| gone.name.clone()).filter(|_| !renamed);
        self.cluster.start(id, name);
        self.told.restarted(id);
    }

    /// Ends every fault.
    pub(super) fn mend(&mut self) {
        self.note("everything is mended");
        let faults = self.cluster.bus.faults();
        faults.start();
        faults.set_chances(Chances::default());
        self.told.eased();
        faults.limit_log(None);
        let _ = self.cluster.api.fault(ApiFault::Clear {});
        for process in self.cluster.processes.values() {
            process.faults().mend();
            process.faults().lose(0);
            process.faults().catch_copy_up();
            process.faults().fail_appends(false);
            if let Some(way) = &process.way {
                way.send_replace(false);
            }
        }
        for timed in &self.plan.faults {
            if let Fault::Kill { id, renamed } | Fault::Stop { id, renamed } = timed.fault {
                self.restart(id, renamed);
            }
        }
        if self
            .plan
            .has(|fault| matches!(fault, Fault::LoseInLog { .. }))
        {
            self.read_again();
        }
    }
}
