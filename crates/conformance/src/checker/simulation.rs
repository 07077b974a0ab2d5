//! Makes histories that are right by construction, from a simulated queue with slow and lost messages.
//!
//! The checker is tried against them: it must accept every one, and find what is then broken on purpose.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::history::{Event, EventKind, History, ReleaseOutcome};

/// What one claim will do, and how slow its messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which lock it asks for.
    pub lock: u32,
    /// When it asks.
    pub invoke_at_ns: u64,
    /// How much it wants of the lock's limit.
    pub weight: u32,
    /// How long each message to the engine takes.
    pub request_ns: u64,
    /// How long each message from the engine takes.
    pub reply_ns: u64,
    /// How long it keeps what it was granted.
    pub hold_ns: u64,
    /// How its story ends.
    pub ending: Ending,
}

/// How a claim's story ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It is granted, and releases after its `hold_ns`.
    Release,
    /// It is granted, renews and shrinks to a weight of 1 half way, and releases.
    ShrinkAndRelease,
    /// It is granted and loses its hold at its deadline; a later release finds nothing.
    Lose,
    /// It is granted and stops believing at its deadline, but its release is quicker than the engine's expiry.
    ReleaseLate,
    /// It gives up after `hold_ns`, before any news has reached it.
    GiveUp,
    /// Its replies are lost: nobody knows what became of it, and the engine drops it after `hold_ns`.
    NoReply,
}

/// Plays the plans on a first come, first served queue, each lock with this limit, and records what the
/// clients see. Claims are numbered from 1, and each is made by a client of the same number.
pub fn simulate(plans: &[Plan], limit: u32) -> History {
    let locks = plans.iter().map(|plan| plan.lock).max().map_or(0, |last| last as usize + 1);
    let mut simulation = Simulation {
        plans,
        limit,
        queues: (0..locks).map(|_| Queue::default()).collect(),
        waits: vec![Wait::Waiting; plans.len()],
        agenda: BinaryHeap::new(),
        events: Vec::new(),
    };
    simulation.run();
    simulation.events.sort_by_key(|event| event.at_ns);
    fence(&mut simulation.events, locks);
    History { events: simulation.events }
}

/// Plays the resource behind each lock: it refuses every token smaller than the largest it has seen.
fn fence(events: &mut [Event], locks: usize) {
    let mut highest = vec![0; locks];
    for event in events {
        if let EventKind::Effect { token, accepted } = &mut event.kind {
            let highest = &mut highest[event.lock as usize];
            *accepted = *token >= *highest;
            *highest = (*highest).max(*token);
        }
    }
}

/// Plans for a busy run: as many claims on each lock, of all weights and with all endings.
///
/// The same seed makes the same plans.
pub fn busy_plans(claims: usize, locks: u32, limit: u32, seed: u64) -> Vec<Plan> {
    let mut random = Random(seed);
    let plan = |index| Plan {
        lock: random.below(locks.into()) as u32,
        invoke_at_ns: 500 * index as u64 + random.below(2_000),
        weight: [1, 1, 1 + random.below(limit.into()) as u32, limit][random.below(4) as usize],
        request_ns: 1 + random.below(100),
        reply_ns: 1 + random.below(100),
        hold_ns: random.below(1_000),
        ending: random.ending(),
    };
    (0..claims).map(plan).collect()
}

/// SplitMix64: tiny, and the same on every machine and with every version of everything.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn ending(&mut self) -> Ending {
        match self.below(20) {
            0 => Ending::ShrinkAndRelease,
            1 => Ending::Lose,
            2 => Ending::ReleaseLate,
            3 => Ending::GiveUp,
            4 => Ending::NoReply,
            _ => Ending::Release,
        }
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<usize>,
    held: u32,
    last_token: u64,
}

#[derive(Clone, Copy)]
enum Wait {
    Waiting,
    Holding,
    Gone,
}

/// What the engine does next; at equal times departures come first, which changes nothing but is definite.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Leave { weight: u32 },
    Shrink { by: u32 },
    Join,
}

struct Simulation<'plans> {
    plans: &'plans [Plan],
    limit: u32,
    queues: Vec<Queue>,
    waits: Vec<Wait>,
    agenda: BinaryHeap<Reverse<(u64, Act, usize)>>,
    events: Vec<Event>,
}

impl Simulation<'_> {
    fn run(&mut self) {
        for (index, plan) in self.plans.iter().enumerate() {
            assert!(
                0 < plan.weight && plan.weight <= self.limit,
                "a plan asks for what can never be granted"
            );
            let kind = EventKind::Invoke { weight: plan.weight, limit: self.limit };
            self.see(index, plan.invoke_at_ns, kind);
            self.plan_act(index, plan.invoke_at_ns + plan.request_ns, Act::Join);
        }
        while let Some(Reverse((at_ns, act, index))) = self.agenda.pop() {
            match act {
                Act::Join => self.join(index, at_ns),
                Act::Shrink { by } => self.queue_of(index).held -= by,
                Act::Leave { weight } => self.leave(index, weight),
            }
            self.grant_who_fits(self.plans[index].lock as usize, at_ns);
        }
    }

    fn join(&mut self, index: usize, at_ns: u64) {
        let plan = self.plans[index];
        self.queue_of(index).waiting.push_back(index);
        let gives_up_at_ns = plan.invoke_at_ns + plan.request_ns + plan.hold_ns;
        match plan.ending {
            Ending::NoReply => {
                self.see(index, at_ns + plan.reply_ns, EventKind::Unknown);
                self.plan_act(index, at_ns + plan.hold_ns, Act::Leave { weight: plan.weight });
            }
            Ending::GiveUp => {
                self.see(index, gives_up_at_ns, EventKind::Cancelled);
                let leave_at_ns = gives_up_at_ns + plan.request_ns;
                self.plan_act(index, leave_at_ns, Act::Leave { weight: plan.weight });
            }
            _ => self.see(index, at_ns + plan.reply_ns, EventKind::Queued),
        }
    }

    fn leave(&mut self, index: usize, weight: u32) {
        if let Wait::Holding = self.waits[index] {
            self.queue_of(index).held -= weight;
        }
        self.waits[index] = Wait::Gone;
    }

    fn grant_who_fits(&mut self, lock: usize, at_ns: u64) {
        while let Some(&first) = self.queues[lock].waiting.front() {
            let gone = matches!(self.waits[first], Wait::Gone);
            let weight = self.plans[first].weight;
            // The one rule: what stands ahead leaves room. All who stand ahead of the first waiter hold.
            if !gone && self.queues[lock].held + weight > self.limit {
                return;
            }
            self.queues[lock].waiting.pop_front();
            if !gone {
                self.queues[lock].held += weight;
                self.waits[first] = Wait::Holding;
                self.grant(first, at_ns);
            }
        }
    }

    fn grant(&mut self, index: usize, at_ns: u64) {
        let plan = self.plans[index];
        let queue = self.queue_of(index);
        queue.last_token += 1;
        let token = queue.last_token;
        let seen_at_ns = at_ns + plan.reply_ns;
        let end_at_ns = seen_at_ns + plan.hold_ns;
        let granted = |deadline_ns| EventKind::Granted { token, deadline_ns };
        match plan.ending {
            Ending::GiveUp | Ending::NoReply => {}
            Ending::Release => {
                self.see(index, seen_at_ns, granted(u64::MAX));
                self.see(index, seen_at_ns, EventKind::Effect { token, accepted: false });
                self.release(index, end_at_ns, plan.weight);
            }
            Ending::ShrinkAndRelease => {
                let half_way_ns = seen_at_ns + plan.hold_ns / 2;
                self.see(index, seen_at_ns, granted(half_way_ns + 1));
                self.see(index, half_way_ns, EventKind::Renewed { deadline_ns: u64::MAX });
                self.see(index, half_way_ns, EventKind::Shrunk { weight: 1 });
                self.plan_act(index, half_way_ns + plan.request_ns, Act::Shrink { by: plan.weight - 1 });
                self.release(index, end_at_ns, 1);
            }
            Ending::Lose => {
                self.see(index, seen_at_ns, granted(end_at_ns));
                self.see(index, end_at_ns, EventKind::Lost);
                self.plan_act(index, end_at_ns, Act::Leave { weight: plan.weight });
                self.see(index, end_at_ns + 1, EventKind::ReleaseInvoke);
                let outcome = ReleaseOutcome::NotHeld;
                self.see(index, end_at_ns + 1 + plan.reply_ns, EventKind::ReleaseDone { outcome });
            }
            Ending::ReleaseLate => {
                self.see(index, seen_at_ns, granted(end_at_ns));
                self.see(index, end_at_ns, EventKind::Lost);
                self.release(index, end_at_ns + 1, plan.weight);
            }
        }
    }

    fn release(&mut self, index: usize, at_ns: u64, weight: u32) {
        let plan = self.plans[index];
        self.see(index, at_ns, EventKind::ReleaseInvoke);
        self.plan_act(index, at_ns + plan.request_ns, Act::Leave { weight });
        let done_at_ns = at_ns + plan.request_ns + plan.reply_ns;
        self.see(index, done_at_ns, EventKind::ReleaseDone { outcome: ReleaseOutcome::Released });
    }

    fn queue_of(&mut self, index: usize) -> &mut Queue {
        &mut self.queues[self.plans[index].lock as usize]
    }

    fn plan_act(&mut self, index: usize, at_ns: u64, act: Act) {
        self.agenda.push(Reverse((at_ns, act, index)));
    }

    fn see(&mut self, index: usize, at_ns: u64, kind: EventKind) {
        let client = u32::try_from(index + 1).expect("fewer claims than client numbers");
        let lock = self.plans[index].lock;
        self.events.push(Event { at_ns, client, lock, claim: client.into(), kind });
    }
}
