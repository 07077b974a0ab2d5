//! The protocol of `ballot`, model-checked: three nodes, three clients, crashes, lost and late messages.
//! Only RedLock has a protocol of its own.
//!
//! The clients' decisions are those of the engine (`ballot` itself); the nodes do what the scripts `attempt`, `raise` and
//! `leave` do. A request may be lost, a reply may be lost, and a request may arrive after its client has given up. A
//! client may crash at any time. How leases end is the model's one assumption:
//!
//! - `Leases::Kept`: a node lets go of a claim only when its client has stopped trusting it. Then a writer holds alone.
//! - `Leases::Broken`: a node may let go at any time (clocks run wild, clients sleep). Then two may believe that they
//!   hold, and the tokens must still be unique, and larger for a claim that began after another was granted.

use crate::ballot::{Given, Verdict, Word, first_round, further_round};
use stateright::{Checker, Model, Property, Representative};

const NODES: usize = 3;
const CLIENTS: usize = 3;
/// How many more rounds a client makes to settle its token.
const MORE_ROUNDS: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Leases {
    Kept,
    Broken,
}

/// What is modelled.
#[derive(Debug, Clone)]
struct RedLock {
    /// Which of the clients want to share; `None` for one that stays away.
    clients: [Option<bool>; CLIENTS],
    leases: Leases,
    /// Whether one node may restart and forget everything.
    a_node_may_forget: bool,
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
    has_forgotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    inside: [bool; CLIENTS],
    number: u64,
    owner: Option<usize>,
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
        heard: bool,
    },
    Raise {
        client: usize,
        node: usize,
        heard: bool,
    },
    /// The client judges what it has heard; who has not spoken by now is silent.
    Judge(usize),
    /// It leaves, gives up or crashes: nobody trusts its hold from here on.
    End(usize),
    /// Its leave arrives, or its lease ends.
    LetGo {
        client: usize,
        node: usize,
    },
    Forget(usize),
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
        self.clients[client].phase = Phase::Holds;
        self.clients[client].granted_before = 0;
    }

    fn end(&mut self, client: usize) {
        self.clients[client].phase = Phase::Over;
        self.clients[client].granted_before = 0;
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
        for it in &mut state.clients {
            it.under_way = order.map(|node| it.under_way[node]);
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
        };
        // One node is ahead, as after a vote that only it took part in: so that second rounds are needed.
        let ahead = Node { number: 1, ..Node::default() };
        vec![State {
            nodes: [Node::default(), Node::default(), ahead],
            clients: self.clients.map(client),
            granted: 0,
            broken: false,
            lost_replies: 0,
            has_forgotten: false,
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
            for node in 0..NODES {
                let may_arrive = self.late_attempts || matches!(it.phase, Phase::Idle | Phase::First(_));
                for heard in ways.iter().copied() {
                    if it.under_way[node] && may_arrive {
                        actions.push(Action::Attempt { client, node, heard });
                    }
                    if matches!(&it.phase, Phase::Further { given, .. } if given[node].is_none()) {
                        actions.push(Action::Raise { client, node, heard });
                    }
                }
                let may_go = it.phase == Phase::Over || self.leases == Leases::Broken;
                if state.nodes[node].inside[client] && may_go {
                    actions.push(Action::LetGo { client, node });
                }
            }
        }
        if self.a_node_may_forget && !state.has_forgotten {
            actions.extend((0..NODES).map(Action::Forget));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Attempt { client, node, heard } => {
                let word = state.nodes[node].attempt(client, |client| self.clients[client] == Some(true));
                let granted = state.granted;
                let it = &mut state.clients[client];
                if it.phase == Phase::Idle {
                    it.phase = Phase::First([None; NODES]);
                    it.granted_before = granted;
                }
                it.under_way[node] = false;
                // 'Busy' and silence come to the same: fewer states.
                if let (Phase::First(words), Word::In(_), true) = (&mut it.phase, word, heard) {
                    words[node] = Some(word);
                }
                state.lost_replies += u8::from(!heard);
            }
            Action::Raise { client, node, heard } => {
                let Phase::Further { number, given, .. } = &mut state.clients[client].phase else {
                    return None;
                };
                let word = state.nodes[node].raise(client, *number);
                given[node] = Some(if heard { word } else { Given::No });
                state.lost_replies += u8::from(!heard);
            }
            Action::Judge(client) => state.judge(client),
            Action::End(client) => state.end(client),
            Action::LetGo { client, node } => state.nodes[node].inside[client] = false,
            Action::Forget(node) => {
                state.nodes[node] = Node::default();
                state.has_forgotten = true;
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

fn check(model: RedLock) -> impl Checker<RedLock> {
    let checker = model.checker().threads(2).symmetry().spawn_dfs().join();
    println!("{} states but for who is who, depth {}", checker.unique_state_count(), checker.max_depth());
    checker
}

const WRITER: Option<bool> = Some(false);
const READER: Option<bool> = Some(true);

#[test]
fn with_leases_kept_a_writer_holds_alone_and_tokens_grow() {
    for clients in [[WRITER; 3], [WRITER, READER, READER]] {
        check(RedLock {
            clients,
            leases: Leases::Kept,
            a_node_may_forget: false,
            lost_replies: 1,
            late_attempts: true,
        })
        .assert_properties();
    }
}

#[test]
fn tokens_grow_even_when_leases_are_broken_and_messages_come_late() {
    // Three who lose replies and come late besides are more states than a test has time for.
    for (clients, lost_replies, late_attempts) in
        [([WRITER; 3], 0, false), ([None, WRITER, WRITER], 1, true), ([None, READER, READER], 1, true)]
    {
        check(RedLock {
            clients,
            leases: Leases::Broken,
            a_node_may_forget: false,
            lost_replies,
            late_attempts,
        })
        .assert_properties();
    }
}

/// The known danger, and the reason for `restart_delay`: the checker must find the break.
#[test]
fn a_node_that_forgets_breaks_it() {
    let checker = check(RedLock {
        clients: [None, WRITER, WRITER],
        leases: Leases::Kept,
        a_node_may_forget: true,
        lost_replies: 0,
        late_attempts: false,
    });
    checker.assert_any_discovery("a writer holds alone");
}
