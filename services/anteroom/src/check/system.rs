//! Checks of what runs, by what is heard over NATS. Pure.

use anteroom_model::{Group, ViewId, limits::AGE_MAX_DEFAULT_MS};
use anteroom_wire::status::LogFaults;

use super::{
    cluster::Cluster,
    finding::{Check, Finding},
    nats::NatsMessages,
    running::outside,
};
use crate::{
    operator::table::{bytes, count, millis},
    output::counted,
};

/// The part of a limit above which there is little room left, in percent.
const FULL_PERCENT: u64 = 80;

/// The time after which an error of a rule is of the past.
const RECENT_MS: u64 = 60_000;

/// Objects that one request may be evaluated over without a warning.
const EXAMINED_MAX: u64 = 10_000;

/// The part of a rule's requests that may be refused because the rule could not be evaluated, in percent.
const REFUSED_PERCENT_MAX: u64 = 5;

/// The requests of a rule from which on such a part says something.
const DECIDED_MIN: u64 = 20;

pub(super) const CHECKS: [Check; 16] = [
    Check {
        id: "nats-reachable",
        category: "nats",
        fact: "NATS takes the operator's login",
        is_pre: false,
        find: reachable,
    },
    Check {
        id: "nats-room",
        category: "nats",
        fact: "the log has room",
        is_pre: false,
        find: room,
    },
    Check {
        id: "nats-stream",
        category: "nats",
        fact: "the stream of the log has the settings that services need",
        is_pre: false,
        find: stream,
    },
    Check {
        id: "nats-copies",
        category: "nats",
        fact: "every copy of the log is up to date",
        is_pre: false,
        find: copies,
    },
    Check {
        id: "watchers-coordinator",
        category: "watchers",
        fact: "a watcher coordinates, and answers",
        is_pre: false,
        find: coordinator,
    },
    Check {
        id: "watchers-groups",
        category: "watchers",
        fact: "every group of views has a leader",
        is_pre: false,
        find: groups,
    },
    Check {
        id: "watchers-standby",
        category: "watchers",
        fact: "a second watcher is there to take over",
        is_pre: false,
        find: standby,
    },
    Check {
        id: "views-heard",
        category: "views",
        fact: "the source of every view is heard",
        is_pre: false,
        find: heard,
    },
    Check {
        id: "views-fresh",
        category: "views",
        fact: "no view is older than a minute",
        is_pre: false,
        find: fresh,
    },
    Check {
        id: "views-served",
        category: "views",
        fact: "a replica serves every view",
        is_pre: false,
        find: served,
    },
    Check {
        id: "views-equal",
        category: "views",
        fact: "no view was found to differ from the log",
        is_pre: false,
        find: equal,
    },
    Check {
        id: "replicas-memory",
        category: "views",
        fact: "views fit into the replicas' memory",
        is_pre: false,
        find: memory,
    },
    Check {
        id: "webhooks-called",
        category: "webhooks",
        fact: "the API server calls each webhook for all that it has compiled",
        is_pre: false,
        find: called,
    },
    Check {
        id: "decisions-errors",
        category: "decisions",
        fact: "every rule could be evaluated in the last minute",
        is_pre: false,
        find: errors,
    },
    Check {
        id: "decisions-refused",
        category: "decisions",
        fact: "no rule refuses more than 5 % of its requests because it could not be evaluated",
        is_pre: false,
        find: refused,
    },
    Check {
        id: "decisions-scans",
        category: "decisions",
        fact: "no request looks at more than 10,000 objects",
        is_pre: false,
        find: scans,
    },
];

const NOT_NAMED: &str = "needs the operator's login: --nats-url, --nats-nkey-file and --nats-ca-file (docs/operators.md)";

/// The reason of checks of an installation outside of the cluster, for which no login was given.
const IN_PROCESS: &str = "`anteroom serve` has its bus in its own process, which its --console shows. Where it has \
    --nats, give `anteroom check` the same NATS: --nats-url";

/// Returns the finding that `find` makes of the messages heard over NATS.
fn over_nats(cluster: &Cluster, find: impl FnOnce(&NatsMessages) -> Finding) -> Finding {
    match &cluster.nats {
        None if outside(cluster).is_some() => Finding::NotAsked(IN_PROCESS.to_owned()),
        None => Finding::NotAsked(NOT_NAMED.to_owned()),
        Some(Err(_)) => Finding::NotAsked("NATS was not reached".to_owned()),
        Some(Ok(nats)) => find(nats),
    }
}

fn reachable(cluster: &Cluster) -> Finding {
    match &cluster.nats {
        Some(Err(error)) => Finding::Failed(error.clone()),
        _ => over_nats(cluster, |_| Finding::Good),
    }
}

fn room(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        Finding::of(&nats.statuses, |said| {
            match (said.log_bytes, said.log_bytes_max) {
                (Some(size), Some(limit)) if is_nearly(size, limit) => {
                    Finding::Failed(format!("{} of {} are taken", bytes(size), bytes(limit)))
                }
                _ => Finding::Good,
            }
        })
    })
}

/// Returns the finding that `find` makes of the log's faults.
fn over_log(cluster: &Cluster, find: fn(&LogFaults) -> Finding) -> Finding {
    over_nats(cluster, |nats| {
        Finding::of(&nats.statuses, |said| match &said.log_faults {
            Some(faults) => find(faults),
            None => Finding::NotAsked("the coordinator has not looked at the log yet".to_owned()),
        })
    })
}

fn stream(cluster: &Cluster) -> Finding {
    over_log(cluster, |faults| {
        Finding::none(faults.settings.clone(), Finding::Failed)
    })
}

fn copies(cluster: &Cluster) -> Finding {
    over_log(cluster, |faults| {
        Finding::none(faults.copies.clone(), Finding::Failed)
    })
}

fn is_nearly(size: u64, limit: u64) -> bool {
    size > limit / 100 * FULL_PERCENT
}

fn coordinator(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        match (nats.system.coordinator(), &nats.statuses) {
            (None, _) => Finding::Failed("no watcher leads group 0".to_owned()),
            (Some(name), Err(error)) => Finding::Failed(format!("{name}: {error}")),
            (Some(_), Ok(_)) => Finding::Good,
        }
    })
}

fn groups(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let led = nats.system.groups();
        let is_led = |group: &Group| led.iter().any(|row| row.group == group.0);
        let without = Group::all().filter(|group| !is_led(group));
        let without = without.map(|group| format!("group {group} has no leader"));
        Finding::none(without.collect(), Finding::Failed)
    })
}

fn standby(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| match &nats.system.watchers()[..] {
        [alone] => Finding::Warning(format!(
            "{alone} is alone: facts grow old while it restarts"
        )),
        _ => Finding::Good,
    })
}

fn heard(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let rows = nats.system.views(nats.at).into_iter();
        let troubled = rows.filter_map(|row| Some(format!("{}: {}", row.view, row.trouble?)));
        Finding::none(troubled.collect(), Finding::Failed)
    })
}

fn fresh(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let rows = nats.system.views(nats.at).into_iter();
        // A polled call is as old as its interval.
        let watched = rows.filter(|row| !ViewId::new(&*row.view).is_of_a_call());
        let old = watched.filter_map(|row| match row.age_ms {
            None => Some(format!("{}: nothing was heard yet", row.view)),
            Some(age_ms) if age_ms > AGE_MAX_DEFAULT_MS => {
                Some(format!("{}: {} old", row.view, millis(age_ms)))
            }
            Some(_) => None,
        });
        Finding::none(old.collect(), Finding::Failed)
    })
}

fn served(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        if nats.system.replicas().is_empty() {
            return Finding::Failed("no replica runs".to_owned());
        }
        let rows = nats.system.views(nats.at).into_iter();
        let unserved = rows.filter(|row| !row.is_system && row.served_by == 0);
        let unserved = unserved.map(|row| format!("{}: {}", row.view, row.state));
        Finding::none(unserved.collect(), Finding::Failed)
    })
}

fn equal(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let rows = nats.system.replicas().into_iter();
        let rows = rows.filter(|row| row.digest_mismatches > 0);
        let differed = rows.map(|row| {
            let (replica, times) = (&row.replica, counted(row.digest_mismatches, "time"));
            format!("{replica}: {times} since its start, and the log was read again")
        });
        Finding::none(differed.collect(), Finding::Warning)
    })
}

fn memory(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let rows = nats.system.replicas().into_iter();
        let full = rows.filter_map(|row| {
            let limit = row.bytes_max?;
            let text = format!("{}: {} of {}", row.replica, bytes(row.bytes), bytes(limit));
            is_nearly(row.bytes, limit).then_some(text)
        });
        Finding::none(full.collect(), Finding::Warning)
    })
}

fn called(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let rows = nats.system.webhooks();
        if rows.is_empty() {
            return Finding::Failed("no webhook runs".to_owned());
        }
        let behind = rows.into_iter().filter_map(|row| match row.trouble {
            Some(trouble) => Some(format!("{}: {trouble}", row.webhook)),
            None if row.compiled == 0 => Some(format!("{}: has read no policies yet", row.webhook)),
            None if row.enforced == 0 => Some(format!("{}: is not called yet", row.webhook)),
            None => None,
        });
        Finding::none(behind.collect(), Finding::Failed)
    })
}

fn errors(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let recent = nats
            .records
            .iter()
            .filter(|record| record.age_ms <= RECENT_MS);
        let rules = recent.flat_map(|record| &record.rules);
        let mut found: Vec<_> = rules
            .filter_map(|rule| {
                let code = rule.code.as_ref()?;
                Some(format!(
                    "{} / {}: {code} {}",
                    rule.policy, rule.rule, rule.message
                ))
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        Finding::none(found, Finding::Failed)
    })
}

fn refused(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let refusing = nats.decisions.rules.iter().filter_map(|row| {
            // A request that violates the rule is refused for that.
            let refused = row.errors.min(row.denied.saturating_sub(row.failed));
            let is_high =
                refused.saturating_mul(100) > row.decided.saturating_mul(REFUSED_PERCENT_MAX);
            (row.decided >= DECIDED_MIN && is_high).then(|| {
                format!(
                    "{} / {}: {} of {} requests: {}",
                    row.policy,
                    row.rule,
                    count(refused),
                    count(row.decided),
                    row.error.as_deref().unwrap_or("an error")
                )
            })
        });
        Finding::none(refusing.collect(), Finding::Failed)
    })
}

fn scans(cluster: &Cluster) -> Finding {
    over_nats(cluster, |nats| {
        let scans = nats.decisions.rules.iter().filter_map(|row| {
            let read = row.reads.iter().find(|read| read.examined > EXAMINED_MAX)?;
            let (rule, entry) = (format!("{} / {}", row.policy, row.rule), &read.entry);
            Some(format!("{rule}: {} of {entry}", count(read.examined)))
        });
        Finding::none(scans.collect(), Finding::Warning)
    })
}

#[cfg(test)]
pub(super) mod tests;
