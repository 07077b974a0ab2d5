//! The protocol of `ballot`, model-checked: three nodes, three clients, crashes, lost and late messages.
//!
//! The clients' decisions are those of the engine (`ballot` itself); the nodes do what the scripts `attempt`, `raise` and
//! `leave` do. A message may be lost, its reply may be lost, and it may arrive at any later time, also after its client
//! has given up. A client may crash at any time. How leases end is the model's one assumption:
//!
//! - `Leases::Kept`: a node lets go of a claim only when its client has stopped trusting it. Then at most one writer
//!   holds, and no reader beside it.
//! - `Leases::Broken`: a node may let go at any time (clocks run wild, clients sleep). Then two may believe that they
//!   hold, and the tokens must still be unique, and larger for whoever began after another was granted.

use crate::ballot::{Given, Verdict, Word, first_round, further_round};
use stateright::{Checker, Model, Property};

const NODES: usize = 3;
const CLIENTS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Leases {
    Kept,
    Broken,
}

/// What is modelled.
#[derive(Debug, Clone)]
struct RedLock {
    /// Which of the clients want to share.
    shared: [bool; CLIENTS],
    leases: Leases,
    /// Whether one node may restart and forget everything.
    a_node_may_forget: bool,
    /// How many replies may be lost in all; requests may be lost without limit.
    lost_replies: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    lost_replies: u8,
    has_forgotten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Node {
    inside: [bool; CLIENTS],
    number: u64,
    owner: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    /// The largest token that had been granted when it began.
    granted_before: u64,
    /// At which nodes its attempt may still arrive. It begins with the first that does.
    under_way: [bool; NODES],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    First([Option<Word>; NODES]),
    Further { number: u64, given: [Option<Given>; NODES], rounds: u8 },
    Holds(u64),
    /// It has left, failed or crashed. The token it once had stays on record.
    Over(Option<u64>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Action {
    /// The request arrives, and the reply does, too, or not.
    Attempt { client: usize, node: usize, heard: bool },
    Raise { client: usize, node: usize, heard: bool },
    /// The client judges what it has heard; who has not spoken by now is silent.
    Judge(usize),
    /// It leaves, gives up or crashes: nobody trusts its hold from here on.
    End(usize),
    /// Its leave arrives, or its lease ends.
    LetGo { client: usize, node: usize },
    Forget(usize),
}

impl Node {
    fn attempt(&mut self, client: usize, shared: &[bool; CLIENTS]) -> Word {
        let others = (0..CLIENTS).filter(|other| *other != client && self.inside[*other]);
        let compatible = others.into_iter().all(|other| shared[client] && shared[other]);
        if !compatible {
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

impl Client {
    fn token(&self) -> Option<u64> {
        match self.phase {
            Phase::Holds(token) => Some(token),
            Phase::Over(token) => token,
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Enters a verdict; `Open` means that the time is up.
    fn judge(&mut self, verdict: Verdict, rounds: u8, inside: [bool; NODES]) {
        self.phase = match verdict {
            Verdict::Holds(token) => Phase::Holds(token),
            Verdict::Raise(number) if rounds < 2 => {
                let given = inside.map(|inside| if inside { None } else { Some(Given::No) });
                Phase::Further { number, given, rounds: rounds + 1 }
            }
            _ => Phase::Over(None),
        };
    }
}

impl State {
    fn largest_token(&self) -> u64 {
        self.clients.iter().filter_map(Client::token).max().unwrap_or(0)
    }
}

impl Model for RedLock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client { phase: Phase::Idle, granted_before: 0, under_way: [true; NODES] };
        // One node is ahead, as after a vote that only it took part in: so that second rounds are needed.
        let ahead = Node { number: 1, ..Node::default() };
        vec![State {
            nodes: [Node::default(), Node::default(), ahead],
            clients: std::array::from_fn(|_| client.clone()),
            lost_replies: 0,
            has_forgotten: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, it) in state.clients.iter().enumerate() {
            let mut ways = vec![true];
            if state.lost_replies < self.lost_replies {
                ways.push(false);
            }
            match &it.phase {
                Phase::Idle | Phase::Over(_) => {}
                Phase::First(words) if matches!(first_round(words), Verdict::Open | Verdict::Fails) => {
                    actions.push(Action::End(client));
                }
                Phase::First(_) | Phase::Further { .. } => {
                    actions.extend([Action::Judge(client), Action::End(client)]);
                }
                Phase::Holds(_) => actions.push(Action::End(client)),
            }
            for node in 0..NODES {
                for heard in &ways {
                    if it.under_way[node] {
                        actions.push(Action::Attempt { client, node, heard: *heard });
                    }
                    if matches!(&it.phase, Phase::Further { given, .. } if given[node].is_none()) {
                        actions.push(Action::Raise { client, node, heard: *heard });
                    }
                }
                let may_go = it.is_over() || self.leases == Leases::Broken;
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
                let granted_before = state.largest_token();
                let word = state.nodes[node].attempt(client, &self.shared);
                let it = &mut state.clients[client];
                if it.phase == Phase::Idle {
                    it.phase = Phase::First([None; NODES]);
                    it.granted_before = granted_before;
                }
                it.under_way[node] = false;
                // 'Busy' and silence come to the same: one state less.
                if let (Phase::First(words), Word::In(_), true) = (&mut it.phase, word, heard) {
                    words[node] = Some(word);
                }
                state.lost_replies += u8::from(!heard);
            }
            Action::Raise { client, node, heard } => {
                let Phase::Further { number, given, .. } = &mut state.clients[client].phase else { return None };
                let word = state.nodes[node].raise(client, *number);
                given[node] = Some(if heard { word } else { Given::No });
                state.lost_replies += u8::from(!heard);
            }
            Action::Judge(client) => judge(&mut state.clients[client])?,
            Action::End(client) => {
                let it = &mut state.clients[client];
                it.phase = Phase::Over(it.token());
            }
            Action::LetGo { client, node } => state.nodes[node].inside[client] = false,
            Action::Forget(node) => {
                state.nodes[node] = Node::default();
                state.has_forgotten = true;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("tokens are unique", |_: &Self, state: &State| {
                let mut tokens: Vec<u64> = state.clients.iter().filter_map(Client::token).collect();
                let all = tokens.len();
                tokens.sort_unstable();
                tokens.dedup();
                tokens.len() == all
            }),
            Property::always("who begins after a grant gets a larger token", |_: &Self, state: &State| {
                state.clients.iter().all(|it| it.token().is_none_or(|token| token > it.granted_before))
            }),
            Property::sometimes("somebody holds", |_: &Self, state: &State| {
                state.clients.iter().any(|it| matches!(it.phase, Phase::Holds(_)))
            }),
            Property::sometimes("a second round is needed", |_: &Self, state: &State| {
                state.clients.iter().any(|it| matches!(it.phase, Phase::Further { .. }))
            }),
        ];
        if self.leases == Leases::Kept {
            properties.push(Property::always("a writer holds alone", |model: &Self, state: &State| {
                let holds = |client: &usize| matches!(state.clients[*client].phase, Phase::Holds(_));
                let holders: Vec<usize> = (0..CLIENTS).filter(holds).collect();
                holders.len() < 2 || holders.iter().all(|client| model.shared[*client])
            }));
        }
        properties
    }
}

/// The client's part: exactly the engine's functions.
fn judge(it: &mut Client) -> Option<()> {
    match it.phase.clone() {
        Phase::First(words) => {
            let verdict = first_round(&words);
            let inside = words.map(|word| matches!(word, Some(Word::In(_))));
            // A node whose number it is already has given it.
            it.judge(verdict, 0, inside);
            if let (Phase::Further { number, given, .. }, Verdict::Raise(_)) = (&mut it.phase, verdict) {
                for (given, word) in given.iter_mut().zip(words) {
                    if word == Some(Word::In(*number)) {
                        *given = Some(Given::Yes);
                    }
                }
            }
        }
        Phase::Further { number, given, rounds } => {
            let inside = given.map(|given| !matches!(given, Some(Given::No)));
            it.judge(further_round(number, &given), rounds, inside);
        }
        _ => return None,
    }
    Some(())
}

fn check(model: RedLock) -> impl Checker<RedLock> {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker
}

const WRITERS: [bool; CLIENTS] = [false; CLIENTS];
const A_WRITER_AND_READERS: [bool; CLIENTS] = [false, true, true];

#[test]
fn with_leases_kept_a_writer_holds_alone_and_tokens_grow() {
    for shared in [WRITERS, A_WRITER_AND_READERS] {
        let model = RedLock { shared, leases: Leases::Kept, a_node_may_forget: false, lost_replies: 1 };
        check(model).assert_properties();
    }
}

#[test]
fn tokens_grow_even_when_leases_are_broken() {
    for shared in [WRITERS, A_WRITER_AND_READERS] {
        let model = RedLock { shared, leases: Leases::Broken, a_node_may_forget: false, lost_replies: 0 };
        check(model).assert_properties();
    }
}

/// The known danger, and the reason for `restart_delay`: the checker must find the break.
#[test]
fn a_node_that_forgets_breaks_it() {
    let model = RedLock { shared: WRITERS, leases: Leases::Kept, a_node_may_forget: true, lost_replies: 0 };
    let checker = check(model);
    checker.assert_any_discovery("a writer holds alone");
}
