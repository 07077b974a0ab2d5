//! The protocol of `ballot`, model-checked: three nodes, three clients, crashes, lost and late messages.
//! Only RedLock has a protocol of its own.
//!
//! The clients' decisions are those of the engine (`ballot` itself); the nodes do what the scripts `claims`, `raise` and
//! `regain` do. A request may be lost, a reply may be lost, and a request may arrive after its client has given up. A
//! client may crash at any time. A node may restart and forget everything; it takes part again at once, or after the
//! delay, and holders renew and regain it. How leases end is the model's one assumption:
//!
//! - `Leases::Kept`: a node lets go of a claim only when its client has stopped trusting it. Then a writer holds alone.
//! - `Leases::Broken`: a node may let go at any time (clocks run wild, clients sleep). Then two may believe that they
//!   hold, and the tokens must still be unique, and larger for a claim that began after another was granted.

use crate::ballot::{Given, Verdict, Word, first_round, further_round, quorum};
use stateright::{Model, Property, Representative};

mod checks;

const NODES: usize = 3;
const CLIENTS: usize = 3;
/// How many more rounds a client makes to settle its token.
const MORE_ROUNDS: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Leases {
    Kept,
    Broken,
}

/// When a node that has forgotten everything takes part again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Restart {
    AtOnce,
    /// After a TTL: every hold that rested on what it forgot has ended, or rests on a later renewal by the others.
    Delayed,
}

/// What is modelled.
#[derive(Debug, Clone)]
struct RedLock {
    /// Which of the clients want to share; `None` for one that stays away.
    clients: [Option<bool>; CLIENTS],
    leases: Leases,
    /// How many nodes may restart and forget everything, one after the other; and what happens then.
    restarts: u8,
    restart: Restart,
    /// How many replies may be lost in all; requests may be lost without limit.
    lost_replies: u8,
    /// Whether an attempt may arrive after its client has given up.
    late_attempts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    /// The tokens granted so far, a bit each.
    granted: u64,
    /// What must never be: a token granted twice, or one smaller than another that was granted before it was tried.
    broken: bool,
    lost_replies: u8,
    /// Which nodes have restarted.
    restarted: [bool; NODES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    inside: [bool; CLIENTS],
    number: u64,
    owner: Option<usize>,
    /// It has restarted and is left alone.
    is_away: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    /// What it wants; clients that want the same are alike. They are in this order.
    wants: Option<bool>,
    phase: Phase,
    /// The tokens that had been granted when it began.
    granted_before: u64,
    /// At which nodes its attempt may still arrive. It begins with the first that does.
    under_way: [bool; NODES],
    /// The nodes by which a holder knows that it holds.
    rests_on: [bool; NODES],
    /// The nodes that have confirmed the renewal under way.
    kept: [bool; NODES],
    /// The nodes to which a renewal that a majority confirmed may still come as a request to let the claim in again.
    regains: [bool; NODES],
    /// The number that goes with it, and whether it is the claim's own.
    fence: (u64, bool),
    /// How many nodes have restarted under its hold.
    restarts: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    First([Option<Word>; NODES]),
    Further {
        number: u64,
        given: [Option<Given>; NODES],
        rounds: u8,
    },
    Holds,
    /// It has left, failed or crashed.
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Action {
    /// The request arrives, and the reply does, too, or not.
    Attempt {
        client: usize,
        node: usize,
        received: bool,
    },
    Raise {
        client: usize,
        node: usize,
        received: bool,
    },
    /// The client judges what it has received; who has not spoken by now is silent.
    Judge(usize),
    /// It leaves, gives up or crashes: nobody trusts its hold from here on.
    End(usize),
    /// Its leave arrives, or its lease ends.
    LetGo {
        client: usize,
        node: usize,
    },
    /// A renewal arrives where the claim is inside.
    Keep {
        client: usize,
        node: usize,
    },
    /// A majority has kept the claim: it holds for another TTL, and requests the others to let it in again.
    Confirm(usize),
    Regain {
        client: usize,
        node: usize,
    },
    Forget(usize),
    /// The delay is over.
    Return(usize),
}

impl Node {
    fn attempt(&mut self, client: usize, shares: impl Fn(usize) -> bool) -> Word {
        let mut others = (0..CLIENTS).filter(|other| *other != client && self.inside[*other]);
        if !others.all(|other| shares(client) && shares(other)) {
            return Word::Busy;
        }
        self.inside[client] = true;
        if self.owner != Some(client) {
            self.number += 1;
            self.owner = Some(client);
        }
        Word::In(self.number)
    }

    fn raise(&mut self, client: usize, number: u64) -> Given {
        if !self.inside[client] {
            return Given::No;
        }
        if self.number > number || (self.number == number && self.owner != Some(client)) {
            return Given::Beyond(self.number);
        }
        (self.number, self.owner) = (number, Some(client));
        Given::Yes
    }

    fn regain(&mut self, client: usize, fence: (u64, bool), shares: impl Fn(usize) -> bool) {
        let mut others = (0..CLIENTS).filter(|other| *other != client && self.inside[*other]);
        if !others.all(|other| shares(client) && shares(other)) {
            return;
        }
        self.inside[client] = true;
        if self.number < fence.0 {
            (self.number, self.owner) = (fence.0, fence.1.then_some(client));
        }
    }
}

impl Client {
    /// Whether it holds, or may come to hold, by what this node has said.
    fn rests_on(&self, node: usize) -> bool {
        match &self.phase {
            Phase::Idle | Phase::Over => false,
            Phase::First(words) => matches!(words[node], Some(Word::In(_))),
            Phase::Further { given, .. } => given[node] != Some(Given::No),
            Phase::Holds => self.rests_on[node],
        }
    }
}

impl State {
    fn judge(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let (verdict, rounds, given) = match it.phase.clone() {
            Phase::First(words) => {
                let verdict = first_round(&words);
                let given = words.map(|word| match (word, verdict) {
                    (Some(Word::In(own)), Verdict::Raise(number)) if own == number => Some(Given::Yes),
                    (Some(Word::In(_)), _) => None,
                    _ => Some(Given::No),
                });
                (verdict, 0, given)
            }
            Phase::Further { number, given, rounds } => {
                let still_inside = |given| if given == Some(Given::No) { Some(Given::No) } else { None };
                (further_round(number, &given), rounds, given.map(still_inside))
            }
            _ => return,
        };
        match verdict {
            Verdict::Holds(token) => self.grant(client, token),
            Verdict::Raise(number) if rounds < MORE_ROUNDS => {
                it.phase = Phase::Further { number, given, rounds: rounds + 1 };
            }
            _ => self.end(client),
        }
    }

    fn grant(&mut self, client: usize, token: u64) {
        let (granted_before, token_bit) = (self.clients[client].granted_before, 1 << token);
        self.broken |= self.granted & token_bit != 0 || granted_before >= token_bit;
        self.granted |= token_bit;
        let it = &mut self.clients[client];
        it.rests_on = std::array::from_fn(|node| it.rests_on(node));
        it.phase = Phase::Holds;
        it.granted_before = 0;
    }

    fn end(&mut self, client: usize) {
        let it = &mut self.clients[client];
        it.phase = Phase::Over;
        it.granted_before = 0;
        (it.rests_on, it.kept, it.restarts) = ([false; NODES], [false; NODES], 0);
    }

    fn confirm(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let kept = self.nodes.iter().zip(it.kept).filter(|(_, kept)| *kept);
        let fence = kept.map(|(node, _)| (node.number, node.owner == Some(client))).max();
        it.fence = fence.unwrap_or_default();
        it.regains = it.kept.map(|kept| !kept);
        it.rests_on = std::mem::take(&mut it.kept);
    }

    /// A node that has forgotten counts by its clock, which is beyond every number that was given before.
    fn forget(&mut self, node: usize, restart: Restart) {
        let number = self.nodes.iter().map(|node| node.number).max().unwrap_or_default();
        self.nodes[node] = Node { number, is_away: restart == Restart::Delayed, ..Node::default() };
        self.restarted[node] = true;
        for it in self.clients.iter_mut().filter(|it| it.phase == Phase::Holds) {
            it.restarts += 1;
        }
    }
}

/// Clients that want the same are alike, and so are the first two nodes, which begin alike: of all the states that differ only in
/// who is who, one is enough.
impl Representative for State {
    fn representative(&self) -> Self {
        let swapped = [1, 0, 2];
        self.clone().with_clients_in_order().min(self.with_nodes(swapped).with_clients_in_order())
    }
}

impl State {
    fn with_nodes(&self, order: [usize; NODES]) -> Self {
        let mut state = self.clone();
        state.nodes = order.map(|node| self.nodes[node]);
        state.restarted = order.map(|node| self.restarted[node]);
        for it in &mut state.clients {
            for flags in [&mut it.under_way, &mut it.rests_on, &mut it.kept, &mut it.regains] {
                *flags = order.map(|node| flags[node]);
            }
            match &mut it.phase {
                Phase::First(words) => *words = order.map(|node| words[node]),
                Phase::Further { given, .. } => *given = order.map(|node| given[node]),
                Phase::Idle | Phase::Holds | Phase::Over => {}
            }
        }
        state
    }

    /// Sorted by all that is a client's own, at the nodes, too: what is equal then is truly alike.
    fn with_clients_in_order(mut self) -> Self {
        let mut order: [usize; CLIENTS] = std::array::from_fn(|client| client);
        order.sort_by_cached_key(|client| {
            let at = self.nodes.map(|node| (node.inside[*client], node.owner == Some(*client)));
            (self.clients[*client].clone(), at)
        });
        let clients = order.map(|client| self.clients[client].clone());
        for node in &mut self.nodes {
            node.inside = order.map(|client| node.inside[client]);
            node.owner = node.owner.and_then(|owner| order.iter().position(|client| *client == owner));
        }
        self.clients = clients;
        self
    }
}

impl Model for RedLock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        assert!(self.clients.is_sorted(), "the order of those who are alike must not matter");
        let client = |wants: Option<bool>| Client {
            wants,
            phase: if wants.is_some() { Phase::Idle } else { Phase::Over },
            granted_before: 0,
            under_way: [wants.is_some(); NODES],
            rests_on: [false; NODES],
            kept: [false; NODES],
            regains: [false; NODES],
            fence: (0, false),
            restarts: 0,
        };
        // One node is ahead, as after a vote that only it took part in: so that second rounds are needed.
        let ahead = Node { number: 1, ..Node::default() };
        vec![State {
            nodes: [Node::default(), Node::default(), ahead],
            clients: self.clients.map(client),
            granted: 0,
            broken: false,
            lost_replies: 0,
            restarted: [false; NODES],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, it) in state.clients.iter().enumerate() {
            match &it.phase {
                Phase::Idle | Phase::Over => {}
                Phase::First(words) if matches!(first_round(words), Verdict::Open | Verdict::Fails) => {
                    actions.push(Action::End(client));
                }
                Phase::First(_) | Phase::Further { .. } => {
                    actions.extend([Action::Judge(client), Action::End(client)]);
                }
                Phase::Holds => actions.push(Action::End(client)),
            }
            let ways: &[bool] = if state.lost_replies < self.lost_replies { &[true, false] } else { &[true] };
            if quorum(NODES) <= it.kept.iter().filter(|kept| **kept).count() {
                actions.push(Action::Confirm(client));
            }
            for node in (0..NODES).filter(|node| !state.nodes[*node].is_away) {
                let may_arrive = self.late_attempts || matches!(it.phase, Phase::Idle | Phase::First(_));
                for received in ways.iter().copied() {
                    if it.under_way[node] && may_arrive {
                        actions.push(Action::Attempt { client, node, received });
                    }
                    if matches!(&it.phase, Phase::Further { given, .. } if given[node].is_none()) {
                        actions.push(Action::Raise { client, node, received });
                    }
                }
                let holds = it.phase == Phase::Holds;
                let is_idle = it.phase == Phase::Over || (holds && !it.rests_on[node] && !it.kept[node]);
                if state.nodes[node].inside[client] {
                    if is_idle || self.leases == Leases::Broken {
                        actions.push(Action::LetGo { client, node });
                    }
                    // Who cannot lose a node need not renew: fewer states.
                    if holds && self.restarts > 0 && !it.kept[node] {
                        actions.push(Action::Keep { client, node });
                    }
                } else if it.regains[node] && (holds || self.late_attempts) {
                    actions.push(Action::Regain { client, node });
                }
            }
        }
        let restarted = state.restarted.iter().filter(|restarted| **restarted).count();
        for (node, it) in state.nodes.iter().enumerate() {
            if restarted < usize::from(self.restarts) && !state.restarted[node] {
                actions.push(Action::Forget(node));
            }
            if it.is_away && !state.clients.iter().any(|it| it.rests_on(node)) {
                actions.push(Action::Return(node));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Attempt { client, node, received } => {
                let word = state.nodes[node].attempt(client, |client| self.clients[client] == Some(true));
                let granted = state.granted;
                let it = &mut state.clients[client];
                if it.phase == Phase::Idle {
                    it.phase = Phase::First([None; NODES]);
                    it.granted_before = granted;
                }
                it.under_way[node] = false;
                // 'Busy' and silence come to the same: fewer states.
                if let (Phase::First(words), Word::In(_), true) = (&mut it.phase, word, received) {
                    words[node] = Some(word);
                }
                state.lost_replies += u8::from(!received);
            }
            Action::Raise { client, node, received } => {
                let Phase::Further { number, given, .. } = &mut state.clients[client].phase else {
                    return None;
                };
                let word = state.nodes[node].raise(client, *number);
                given[node] = Some(if received { word } else { Given::No });
                state.lost_replies += u8::from(!received);
            }
            Action::Judge(client) => state.judge(client),
            Action::End(client) => state.end(client),
            Action::LetGo { client, node } => state.nodes[node].inside[client] = false,
            Action::Keep { client, node } => state.clients[client].kept[node] = true,
            Action::Confirm(client) => state.confirm(client),
            Action::Regain { client, node } => {
                let fence = state.clients[client].fence;
                state.nodes[node].regain(client, fence, |client| self.clients[client] == Some(true));
                state.clients[client].regains[node] = false;
            }
            Action::Forget(node) => state.forget(node, self.restart),
            Action::Return(node) => {
                state.nodes[node].is_away = false;
                // A renewal that is still open by now has been given up.
                state.clients.iter_mut().for_each(|it| it.kept[node] = false);
            }
        }
        if !self.late_attempts {
            for it in &mut state.clients {
                if !matches!(it.phase, Phase::Idle | Phase::First(_)) {
                    it.under_way = [false; NODES];
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("tokens are unique and grow", |_: &Self, state: &State| !state.broken),
            Property::sometimes("somebody holds", |_: &Self, state: &State| {
                state.clients.iter().any(|it| it.phase == Phase::Holds)
            }),
            Property::sometimes("a second round is needed", |_: &Self, state: &State| {
                state.clients.iter().any(|it| matches!(it.phase, Phase::Further { .. }))
            }),
        ];
        if self.restarts > 0 {
            properties.push(Property::sometimes("a hold outlives them all", |_: &Self, state: &State| {
                let all_back = state.nodes.iter().all(|node| !node.is_away);
                all_back && state.clients.iter().any(|it| usize::from(it.restarts) == NODES)
            }));
        }
        if self.leases == Leases::Kept {
            properties.push(Property::always("a writer holds alone", |model: &Self, state: &State| {
                let holds = |client: &usize| state.clients[*client].phase == Phase::Holds;
                let holders: Vec<usize> = (0..CLIENTS).filter(holds).collect();
                holders.len() < 2 || holders.iter().all(|client| model.clients[*client] == Some(true))
            }));
        }
        properties
    }
}
