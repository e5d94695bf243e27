//! The end of a schedule: everything is mended, and has to be right again, in every process and every view.

use std::collections::HashMap;

use anteroom_model::{Digest, ViewRecord, ViewState};

use super::*;

impl Run<'_> {
    /// Waits until everything is right.
    pub(super) async fn settle(&mut self) {
        let begun = Instant::now();
        loop {
            self.hold_writers();
            self.look();
            let wrong = self.wrong().await;
            match wrong {
                None => return self.note(&format!("right after {:?}", begun.elapsed())),
                Some(wrong) if begun.elapsed() > SETTLED_AFTER => {
                    let text =
                        format!("not right {SETTLED_AFTER:?} after everything was mended: {wrong}");
                    return self.judge.lock().violation(&text);
                }
                Some(wrong) => self.note(&format!("waits: {wrong}")),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Returns the first thing that is not right.
    async fn wrong(&mut self) -> Option<String> {
        self.take_asked();
        if self.generation > 0 && self.told.generation(UNIQUE_HOST) != Some(self.generation) {
            let policy = self.cluster.api.get(POLICIES, "", UNIQUE_HOST);
            let policy = policy.unwrap_or_default();
            let message = ready_condition(&policy).map(|ready| &ready["message"]);
            let generation = self.generation;
            return Some(format!(
                "the policy's generation {generation} is not told as ready: {message:?}"
            ));
        }
        if let Some(differs) = self.differing_view().await {
            return Some(differs);
        }
        let owners = self.judge.lock().owners_now();
        let processes = std::mem::take(&mut self.cluster.processes);
        let mut wrong = None;
        for (id, process) in &processes {
            if !process.is_ready() {
                wrong = Some(format!(
                    "{} waits for {}",
                    process.name,
                    process.waits_for()
                ));
            } else if id.0 == Kind::Replica {
                wrong = self.wrong_replica(&process.name, &owners).await;
            } else if let Some(webhook) = &process.webhook {
                wrong = self.wrong_webhook(&process.name, webhook).await;
            }
            if wrong.is_some() {
                break;
            }
        }
        self.cluster.processes = processes;
        wrong
    }

    async fn wrong_replica(&self, name: &str, owners: &Owners) -> Option<String> {
        match ask_replica(&self.cluster, name).await {
            Ok(found) if found == *owners => None,
            Ok(found) => Some(format!("{name} has {found:?}, the API server {owners:?}")),
            Err(error) => Some(format!("{name}: {error}")),
        }
    }

    async fn wrong_webhook(&self, name: &str, webhook: &Webhook) -> Option<String> {
        for host in 0..crate::plan::HOSTS {
            let host = host_of(host);
            let object = ingress("default", "somebody-else", &host);
            let answered = ask(&self.judge, name.to_owned(), webhook, &object, None).await?;
            let is_taken = self.judge.lock().is_taken(&host);
            let is_right = match &answered.answer {
                Answer::Allowed => !is_taken || self.generation == 0,
                Answer::Denied { .. } => is_taken && self.generation > 0,
                Answer::Failed { .. } => false,
            };
            if !is_right {
                return Some(format!(
                    "{name} on {host}, taken={is_taken}: {:?}",
                    answered.answer
                ));
            }
        }
        None
    }

    /// Returns the first view of which a replica holds something else than the log has, or of which the log has something
    /// else than its writer says.
    async fn differing_view(&self) -> Option<String> {
        let index = match self.cluster.bus.index().await {
            Ok(index) => index,
            Err(error) => return Some(format!("no index of the log: {error}")),
        };
        let views: BTreeMap<_, _> = index.views.iter().collect();
        let none = HashMap::new();
        for (id, record) in views {
            match record.state {
                ViewState::Synced => {}
                ViewState::Syncing => return Some(format!("{id} is not synced in the log")),
                ViewState::Failed { .. } | ViewState::Dropped => continue,
            }
            let mut in_log = (0, Digest::EMPTY);
            for (key, (epoch, version)) in index.objects.get(id).unwrap_or(&none) {
                // Readers take nothing of before the view's begin.
                if *epoch >= record.origin {
                    in_log.0 += 1;
                    in_log.1.add(key, version);
                }
            }
            if self.differs_from_writer(record, in_log) {
                let of_writer = (record.objects, record.digest);
                return Some(format!(
                    "the log has {in_log:?} of {id}, its writer {of_writer:?}"
                ));
            }
            if let Some(differs) = self.differs_in_a_replica(id, in_log) {
                return Some(differs);
            }
        }
        None
    }

    /// Compares the log with the last control record of a view, where the log may have lost something. That record
    /// follows the last change by 10 s, which would be most of the time of any other schedule.
    fn differs_from_writer(&self, record: &ViewRecord, in_log: (u64, Digest)) -> bool {
        let loses = |fault: &Fault| {
            matches!(
                fault,
                Fault::Lose { .. } | Fault::LoseInLog { .. } | Fault::OtherHistory { .. }
            )
        };
        self.plan.has(loses) && in_log != (record.objects, record.digest)
    }

    fn differs_in_a_replica(&self, id: &ViewId, in_log: (u64, Digest)) -> Option<String> {
        let processes = self.cluster.processes.values();
        for replica in processes.filter(|process| process.id.0 == Kind::Replica) {
            let name = &replica.name;
            let Some(view) = replica.view(id) else {
                return Some(format!("{name} does not hold {id}"));
            };
            let state = view.status().borrow().state.clone();
            if !view.status().borrow().serves() {
                return Some(format!("{name} does not serve {id}, which is {state:?}"));
            }
            let held = view.digest();
            if held != in_log {
                return Some(format!("{name} has {held:?} of {id}, the log {in_log:?}"));
            }
        }
        None
    }
}
