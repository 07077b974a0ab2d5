//! The table of cases.

mod asking;
mod away;
mod dropping;
mod electing;
mod ending;
mod exclusion;
mod faces;
mod faults;
mod holds;
mod leases;
mod looking;
mod loss;
mod names;
mod order;
mod owners;
mod permits;
mod processes;
mod reading;
mod refusals;
mod tokens;
mod trying;

use crate::bench::Bench;
use futures_util::future::LocalBoxFuture;
use lockkeeper::views::Abilities;

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Bench) -> LocalBoxFuture<'static, ()>,
}

/// What a case needs of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Fair,
    Shared,
    Permits,
    Downgrade,
    Detach,
    Ask,
    AskMessage,
    Processes,
    DurableTokens,
    Server,
}

impl Need {
    /// Why the case cannot be run on an engine with these abilities, if it cannot.
    pub(crate) fn missing(self, abilities: &Abilities) -> Option<&'static str> {
        let (has, reason) = match self {
            Self::Fair => (abilities.fair, "there is no queue in this style: the quickest wins"),
            Self::Shared => (abilities.shared, "this style has no shared claims"),
            Self::Permits => (abilities.permits, "this style has no permits"),
            Self::Downgrade => (abilities.downgrade, "this style cannot shrink a hold"),
            Self::Detach => (abilities.detach, "these locks end with a connection or a session"),
            Self::Ask => (abilities.ask, "this style cannot carry a request to a holder"),
            Self::AskMessage => {
                (asking::is_a_message(abilities), "its holders learn of a request when they renew")
            }
            Self::Processes => (abilities.across_processes, "these locks are inside one process"),
            Self::Server => (abilities.across_machines, "there is no server that could be away"),
            Self::DurableTokens => (abilities.token_survives_restart, "these locks do not outlive a restart"),
        };
        (!has).then_some(reason)
    }
}

macro_rules! cases {
    ($($topic:ident::$case:ident [$($need:ident),*];)*) => {
        vec![$(Case {
            name: concat!(stringify!($topic), "::", stringify!($case)),
            needs: &[$(Need::$need),*],
            run: |bench| Box::pin($topic::$case(bench)),
        }),*]
    };
}

/// The cases that run over TLS in every test run: one of each kind of request, wait and loss, and a reconnect.
pub(crate) const OVER_TLS: &[&str] = &[
    "exclusion::one_holder_at_a_time_under_contention",
    "order::first_come_first_served",
    "trying::a_try_leaves_nothing_behind",
    "trying::a_timed_wait_ends_without_the_lock",
    "reading::a_writer_waits_for_every_reader",
    "permits::never_more_than_the_limit",
    "leases::a_hold_outlives_many_ttls",
    "leases::a_waiter_outlives_many_ttls",
    "dropping::a_future_dropped_at_any_await_point_leaves_nothing",
    "dropping::a_dropped_guard_frees_the_lock",
    "loss::an_evicted_hold_is_lost_and_frees_the_lock",
    "tokens::grow_with_every_grant",
    "tokens::grow_after_a_restart",
    "processes::a_killed_holder_frees_the_lock",
    "looking::a_holder_is_shown_with_its_token",
    "away::a_wait_outlives_the_reset_of_every_connection",
];

/// Every case there is.
pub(crate) fn all() -> Vec<Case> {
    cases![
        exclusion::one_holder_at_a_time_under_contention [];
        exclusion::a_shared_counter_stays_exact [];
        exclusion::many_locks_at_once_do_not_disturb_each_other [];
        order::first_come_first_served [Fair];
        order::a_thousand_waiters_each_get_their_turn [Fair];
        order::a_cancelled_waiter_lets_the_next_one_go_on [Fair];
        trying::a_free_lock_is_had_at_once [];
        trying::a_held_lock_is_not_waited_for [];
        trying::a_try_leaves_nothing_behind [];
        trying::a_timed_wait_ends_without_the_lock [];
        trying::a_timed_wait_gets_a_lock_that_is_freed_in_time [];
        trying::a_task_that_waits_for_itself_is_told [];
        reading::readers_share_and_exclude_writers [Shared];
        reading::a_writer_waits_for_every_reader [Shared];
        reading::a_reader_behind_a_waiting_writer_waits [Shared, Fair];
        reading::readers_behind_a_writer_go_on_together [Shared, Fair];
        reading::a_writer_becomes_a_reader_without_letting_go [Shared, Downgrade];
        reading::readers_and_writers_under_contention [Shared];
        permits::never_more_than_the_limit [Permits];
        permits::several_permits_at_once [Permits];
        permits::a_large_want_is_not_overtaken_by_small_ones [Permits, Fair];
        permits::no_wake_up_is_lost_when_the_first_and_the_third_leave [Permits, Fair];
        permits::everybody_must_agree_on_the_number [Permits];
        owners::an_owner_enters_again_and_must_release_as_often [];
        owners::entering_again_costs_no_round_trip [];
        owners::two_owners_exclude_each_other [];
        owners::a_reader_cannot_become_a_writer_by_entering_again [Shared];
        owners::tasks_of_one_owner_do_not_wait_for_each_other [];
        leases::a_fixed_lease_frees_itself [];
        leases::a_fixed_lease_longer_than_the_ttl_is_kept_to_its_end [];
        leases::a_hold_outlives_many_ttls [];
        leases::a_waiter_outlives_many_ttls [];
        leases::a_blocked_executor_does_not_lose_the_lock [];
        leases::all_claims_of_a_keeper_are_renewed_in_one_call [];
        holds::a_detached_hold_outlives_its_keeper_and_is_attached_by_another [];
        holds::a_detached_reader_is_attached [Detach, Shared];
        holds::a_detached_permit_is_attached [Detach, Permits];
        holds::a_detached_hold_ends_in_time_and_the_next_is_granted [Detach];
        holds::an_old_handle_does_not_undo_a_renewal [Detach];
        holds::a_hold_lasts_for_its_least_time [];
        holds::a_killed_process_keeps_its_least_time [Detach, Processes];
        holds::a_lock_may_have_a_ttl_of_its_own [];
        dropping::a_future_dropped_at_any_await_point_leaves_nothing [];
        dropping::a_wait_dropped_at_any_await_point_leaves_nothing [];
        dropping::a_dropped_guard_frees_the_lock [];
        dropping::a_release_dropped_half_way_still_frees_the_lock [];
        dropping::a_guard_outlives_its_keeper_handle [];
        dropping::a_closed_keeper_frees_everything [];
        loss::an_evicted_hold_is_lost_and_frees_the_lock [];
        loss::releasing_a_lost_guard_harms_nobody [];
        loss::an_eviction_leaves_the_keepers_other_lock_alone [];
        loss::lost_fires_before_the_next_grant_when_renewals_are_cut [];
        loss::a_claim_that_is_not_renewed_expires [];
        loss::a_late_renewal_does_not_revive [];
        loss::work_under_protection_is_cancelled_on_loss [];
        loss::an_evicted_waiter_joins_again [Fair];
        loss::a_wait_that_joins_again_says_so [Fair];
        asking::an_asked_holder_is_told_and_lets_go [Ask];
        asking::a_message_tells_the_holder_long_before_it_renews [AskMessage];
        asking::a_holder_that_goes_on_keeps_its_lock [Ask];
        away::a_wait_learns_that_the_server_is_away_and_outlives_a_short_absence [Server];
        away::a_wait_outlives_the_reset_of_every_connection [Server];
        faults::a_lost_reply_of_an_acquire_leaves_nothing [];
        faults::a_wait_outlives_a_lost_reply [];
        faults::a_lost_reply_of_a_renewal_is_only_uncertain [];
        faults::a_lost_reply_of_a_release_still_frees [];
        faults::duplicated_requests_change_nothing [];
        faults::delayed_renewals_do_not_lose_the_lock [];
        tokens::grow_with_every_grant [];
        tokens::grow_from_keeper_to_keeper_and_after_idle_times [];
        tokens::grow_after_an_eviction [];
        tokens::grow_after_an_expiry [];
        tokens::grow_after_a_kill [Processes];
        tokens::grow_after_a_restart [DurableTokens];
        processes::a_killed_holder_frees_the_lock [Processes];
        processes::a_killed_waiter_does_not_stall_the_queue [Processes];
        processes::a_paused_holder_finds_out_that_it_lost [Processes];
        ending::a_guard_dropped_at_the_end_of_main_frees_the_lock [Processes];
        looking::the_queue_is_shown_in_order [Fair];
        looking::a_holder_is_shown_with_its_token [];
        looking::a_hold_is_shown_since_its_grant_and_a_wait_since_its_join [];
        looking::only_the_asked_prefix_is_shown [];
        looking::nothing_is_left_after_release [];
        names::bad_names_are_refused_before_anything_is_sent [];
        names::names_that_look_alike_are_different_locks [];
        names::mutex_and_semaphore_of_one_name_are_refused [Permits];
        refusals::what_a_style_lacks_is_refused_with_a_way_out [];
        faces::several_locks_are_had_all_or_none [];
        faces::several_locks_in_any_order_do_not_deadlock [];
        faces::one_lost_lock_of_several_is_the_loss_of_all [];
        faces::locks_may_span_keepers [];
        faces::a_condition_wakes_who_waited_longest [Shared];
        faces::a_condition_wakes_everybody [Shared];
        faces::a_condition_gives_up_in_time [Shared];
        faces::one_candidate_leads [];
        electing::an_observer_sees_every_leader_and_does_not_queue [];
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<_> = super::all().iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_case_over_tls_exists() {
        let names: Vec<_> = super::all().iter().map(|case| case.name).collect();
        assert!(super::OVER_TLS.iter().all(|name| names.contains(name)));
    }
}
