//! The contract of a bus, held against both: in-process, and NATS on a real nats-server.
//!
//! Every test of the modules `log`, `groups`, `follow`, `calls` and `faults` is generic over a [`Harness`] and
//! runs twice; those of the log run on three servers too (`cluster`). What only a real server can do is in `nats`. What needs a nats-server is compiled with the
//! feature `testing` alone, so that `cargo test` needs none; `cargo xtask test` switches it on and builds one.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

#[path = "contract/calls.rs"]
mod calls;
#[cfg(feature = "testing")]
#[path = "contract/cluster.rs"]
mod cluster;
#[cfg(feature = "testing")]
#[path = "contract/deployed.rs"]
mod deployed;
#[path = "contract/faults.rs"]
mod faults;
#[path = "contract/follow.rs"]
mod follow;
#[path = "contract/groups.rs"]
mod groups;
#[path = "contract/harness.rs"]
mod harness;
#[path = "contract/log.rs"]
mod log;
#[cfg(feature = "testing")]
#[path = "contract/nats.rs"]
mod nats;
#[cfg(feature = "testing")]
#[path = "contract/patient.rs"]
mod patient;
#[cfg(feature = "testing")]
#[path = "contract/permissions.rs"]
mod permissions;
#[cfg(feature = "testing")]
#[path = "contract/server.rs"]
mod server;
#[path = "contract/support.rs"]
mod support;

/// Runs each test against a bus.
macro_rules! runs {
    ($attribute:meta, $bus:ty; $($module:ident: $($test:ident)*;)*) => {
        $(mod $module {
            $(#[$attribute]
            async fn $test() {
                crate::$module::$test(<$bus>::start().await).await;
            })*
        })*
    };
}

/// Runs each test against each bus, and those of the log against three servers too. Where clients are connected to several
/// servers, a server hears of another's subscriptions a moment later, so calls and signals are left out there.
macro_rules! contract {
    (of_the_log { $($of_the_log:tt)* } of_the_rest { $($of_the_rest:tt)* }) => {
        mod on_local {
            runs! { tokio::test, crate::harness::Local; $($of_the_log)* $($of_the_rest)* }
        }
        #[cfg(feature = "testing")]
        mod on_nats {
            runs! {
                tokio::test(flavor = "multi_thread", worker_threads = 2), crate::server::Nats;
                $($of_the_log)* $($of_the_rest)*
            }
        }
        #[cfg(feature = "testing")]
        mod on_three_servers {
            runs! {
                tokio::test(flavor = "multi_thread", worker_threads = 2), crate::cluster::ThreeServers;
                $($of_the_log)*
            }
        }
    };
}

contract! {
    of_the_log {
        log:
            one_total_order_with_growing_positions
            the_last_record_of_every_key_is_kept
            a_stale_writer_writes_nothing
            a_batch_under_the_fence_before_a_renewal_is_refused
            a_batch_is_all_or_nothing
            the_lease_is_compare_and_swap
            a_fence_of_a_deleted_log_does_not_hold
            a_dropped_view_is_purged
            a_view_that_is_not_dropped_is_not_purged
            the_index_has_live_objects_and_control_records
            the_index_has_the_highest_term_of_any_record
            limits_are_refused_before_anything_is_written
            without_a_log_everything_says_so;
        groups:
            leases_of_groups_are_apart
            a_fence_holds_in_its_own_group_alone
            writers_of_two_groups_share_one_total_order
            one_client_writes_for_all_groups_at_once
            the_index_is_read_while_another_group_is_written;
        follow:
            it_sees_records_as_they_were_written
            it_sees_tombstones
            a_follower_sees_only_its_scope
            a_scope_of_nothing_is_caught_up
            caught_up_means_that_nothing_is_missing
            a_slow_reader_loses_nothing
            a_slow_reader_is_told_when_it_has_what_superseded_records
            a_follower_that_is_asked_to_restart_reads_the_log_again
            it_waits_for_the_log_to_be_made;
    }
    of_the_rest {
        calls:
            a_call_is_answered_with_what_travelled_beside_it
            nobody_there_is_known_at_once
            an_unanswered_call_times_out
            each_call_reaches_one_server
            a_replica_has_an_address_of_its_own
            draining_loses_no_call
            leaving_a_full_place_loses_no_call
            leaving_leaves_the_others
            oversized_calls_and_replies_are_refused
            the_addresses_of_one_view_are_apart
            live_reads_reach_one_watcher
            a_thousand_views_are_served_at_once
            beats_reach_whoever_listens
            a_signal_reaches_who_listens_to_its_type_and_nobody_else
            violations_are_heard_too;
        faults:
            the_connection_is_watched
            while_away_everything_fails_at_once
            a_follower_goes_on_after_an_outage
            a_server_is_back_after_an_outage
            beats_are_back_after_an_outage
            a_log_made_anew_is_noticed
            a_log_is_made_anew_once_for_those_who_found_it_shortened
            a_deleted_log_is_noticed
            closing_ends_everything;
    }
}
