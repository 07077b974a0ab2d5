//! RedLock: a race on several nodes at once, which a majority decides. It is the engine's only style.

use crate::ENGINE;
use crate::ballot::{self, Given, Verdict, Word, quorum};
use crate::nodes::{Nodes, Replies, Step};
use crate::regain::Round;
use crate::scripts;
use crate::view;
use futures_util::FutureExt as _;
use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, LockName, Moment, Race, Renewal, background,
};
use lockkeeper_core::{Abilities, Demand, Error, LockView, Result, Token};
use lockkeeper_redis::parts::{
    Call, HolderText, Pace, PlainKeys, Pollers, Script, Wakes, error, foreign_bytes, integer, milliseconds,
};
use rand::RngExt as _;
use redis::{RedisError, RedisResult, Value};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a node remembers the last number of an idle lock: the nodes' clocks must not differ by more.
const FENCE_MS: u64 = 600_000;
/// How many holds one script renews: enough to spare a server most of the calls, few enough not to hold it up.
const LOCKS_PER_SCRIPT: usize = 64;
/// How many more rounds a token may take: only readers who come at the same time need more than one.
const MORE_ROUNDS: usize = 3;
/// After a vote nobody won, and after a wake: different for everybody, so that one of them comes first at most nodes.
const SPLIT_PAUSE_US: RangeInclusive<u64> = 200..=5_000;

/// Locks on a majority of independent servers.
#[derive(Debug)]
pub(crate) struct RedLock(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) nodes: Nodes,
    channel: String,
    wakes: Wakes,
    pub(crate) pollers: Pollers,
    holder: HolderText,
    attempts: AtomicU64,
    /// Claims that too few nodes have, and when the last of these has forgotten them.
    pub(crate) too_few: Mutex<HashMap<ClaimId, Moment>>,
}

pub(crate) fn fence_ms(ttl: Duration) -> u64 {
    milliseconds(ttl) + FENCE_MS
}

pub(crate) fn mode(claim: &Claim) -> &'static str {
    if claim.demand == Demand::Shared { "shared" } else { "exclusive" }
}

/// The keys of a lock, as every script takes them.
pub(crate) fn keys(name: &str) -> [String; 3] {
    let keys = PlainKeys::of(name);
    let (fence, waiting) = (keys.beside("fence"), keys.waiting());
    [keys.lock, fence, waiting]
}

fn call(script: &'static Script, name: &LockName) -> Call {
    script.call(&keys(name.as_str()))
}

/// The keys of a lock, and the one that marks the claim as one that has left.
fn keys_of(claim: &Claim) -> [String; 4] {
    let [lock, fence, waiting] = keys(claim.name.as_str());
    let left = PlainKeys::of(claim.name.as_str()).left(claim.id);
    [lock, fence, waiting, left]
}

pub(crate) fn call_for(script: &'static Script, claim: &Claim) -> Call {
    script.call(&keys_of(claim)).arg(claim.id.to_string())
}

/// What takes this attempt of a claim back; 0 is all of them.
fn leaving(claim: &Claim, attempt: u64) -> Step {
    let (none, ttl_ms) = (String::new, milliseconds(claim.ttl).to_string());
    let arguments = [claim.id.to_string(), attempt.to_string(), "leave".into(), ttl_ms, none(), none()];
    Step { keys: keys_of(claim), arguments }
}

fn keep_call(renewals: &[Renewal]) -> Call {
    let keys: Vec<String> = renewals.iter().flat_map(|renewal| keys(renewal.claim.name.as_str())).collect();
    renewals.iter().fold(scripts::KEEP.call(&keys), |call, renewal| {
        let call = call.arg(renewal.claim.id.to_string());
        call.arg(milliseconds(renewal.ttl)).arg(fence_ms(renewal.ttl))
    })
}

fn no_majority(doing: &'static str, last: Option<RedisError>) -> Error {
    match last {
        Some(error) => {
            Error::temporary(ENGINE, doing, format!("no majority of the servers replies: {error}"))
        }
        None => Error::temporary(ENGINE, doing, "no majority of the servers replies"),
    }
}

/// Runs the rounds of one request on the background runtime, where their replies come: the caller is woken once, by the
/// outcome. They go on when the caller gives up.
async fn in_background<T: Send + 'static>(
    doing: &'static str,
    rounds: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let outcome = background::handle().spawn(rounds).await;
    outcome.unwrap_or_else(|error| Err(Error::temporary(ENGINE, doing, error)))
}

/// How an attempt ended.
enum Outcome {
    Holds(u64),
    /// Nobody won, or somebody else did; how long the longest-lived hold seen can last.
    Busy(Option<Duration>),
    Silence(Option<RedisError>),
}

impl Inner {
    /// An engine on these nodes, which send their messages to this channel.
    pub(crate) fn new(nodes: Nodes, channel: String) -> Self {
        Self {
            nodes,
            channel,
            wakes: Wakes::default(),
            pollers: Pollers::default(),
            holder: HolderText::default(),
            attempts: AtomicU64::new(0),
            too_few: Mutex::default(),
        }
    }

    /// Receives a message of the channel: `<claim id> <lock>`. If the claim has given up waiting, the next one is woken.
    pub(crate) fn receive(self: &Arc<Self>, message: &str) {
        let Some((id, name)) = message.split_once(' ') else { return };
        let Ok(id) = id.parse::<ClaimId>() else { return };
        if !self.wakes.notify(id) {
            self.pass(LockName::from_engine(name));
        }
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        // Validity is the TTL less the time spent and the drift: it is counted from here (Law 5).
        let sent: Moment = Clock::Boot.now();
        let attempt = self.attempts.fetch_add(1, SeqCst) + 1;
        let mut words = vec![None; self.nodes.len()];
        let outcome = self.vote(claim, attempt, &mut words).await;
        let in_time = Clock::Boot.now().since(sent) < claim.ttl;
        match outcome {
            Outcome::Holds(token) if in_time => {
                return Ok(Attempted::GrantedAsOf(Grant { token: Token(token) }, sent, None));
            }
            _ => self.withdraw(claim, attempt, &words).await,
        }
        match outcome {
            Outcome::Silence(last) => Err(no_majority("take the lock", last)),
            Outcome::Busy(free_in) => Ok(Attempted::Busy { free_in }),
            Outcome::Holds(_) => Ok(Attempted::Busy { free_in: None }),
        }
    }

    async fn leave(&self, step: Step) -> Result<Left> {
        let (left, replied, last) = self.count(self.nodes.step(step)).await;
        let needed = quorum(self.nodes.len());
        if replied < needed {
            return Err(no_majority("free the lock", last));
        }
        let may_have_left = left + (self.nodes.len() - replied);
        Ok(if left > 0 && may_have_left >= needed { Left::Left } else { Left::NotThere })
    }

    /// One vote. What each node replies is noted in `words`.
    async fn vote(&self, claim: &Claim, attempt: u64, words: &mut [Option<Word>]) -> Outcome {
        let value = format!("{}-{attempt} {}", claim.id, self.holder.of(claim));
        let step = Step {
            keys: keys_of(claim),
            arguments: [
                claim.id.to_string(),
                attempt.to_string(),
                mode(claim).into(),
                milliseconds(claim.ttl).to_string(),
                value,
                fence_ms(claim.ttl).to_string(),
            ],
        };
        let mut replies = self.nodes.step(step);
        let (mut free_in, mut last) = (None, None);
        while let Some((node, reply)) = replies.next().await {
            words[node] = Some(read_word(reply, &mut free_in, &mut last));
            match ballot::first_round(words) {
                Verdict::Open => {}
                Verdict::Holds(token) => return Outcome::Holds(token),
                Verdict::Raise(number) => return self.settle(claim, number, words).await,
                Verdict::Fails => break,
            }
        }
        let silent = words.iter().filter(|word| matches!(word, Some(Word::Silent))).count();
        if silent >= quorum(words.len()) { Outcome::Silence(last) } else { Outcome::Busy(free_in) }
    }

    /// Requests one number from the nodes that let the claim in, until a majority has given it.
    async fn settle(&self, claim: &Claim, number: u64, words: &[Option<Word>]) -> Outcome {
        let mut number = number;
        let mut given: Vec<Option<Given>> = words
            .iter()
            .map(|word| match word {
                Some(Word::In(own)) if *own == number => Some(Given::Yes),
                Some(Word::In(_)) => None,
                _ => Some(Given::No),
            })
            .collect();
        for _ in 0..MORE_ROUNDS {
            let open: Vec<usize> = (0..given.len()).filter(|node| given[*node].is_none()).collect();
            let call = call(&scripts::RAISE, &claim.name).arg(claim.id.to_string());
            let call = call.arg(number).arg(fence_ms(claim.ttl));
            let mut replies = self.nodes.request(open.into_iter(), call);
            let verdict = loop {
                let Some((node, reply)) = replies.next().await else {
                    break ballot::further_round(number, &given);
                };
                given[node] = Some(read_given(reply));
                match ballot::further_round(number, &given) {
                    Verdict::Open => {}
                    settled => break settled,
                }
            };
            match verdict {
                Verdict::Holds(token) => return Outcome::Holds(token),
                Verdict::Raise(next) => number = next,
                Verdict::Open | Verdict::Fails => break,
            }
            // The nodes where the claim is still inside are requested to give the new number.
            for word in &mut given {
                *word = if matches!(word, Some(Given::No)) { Some(Given::No) } else { None };
            }
        }
        Outcome::Busy(None)
    }

    /// Takes back what an attempt left, at every node, also at those that did not reply. Waits only for those that
    /// let it in; the attempt's number keeps a late one from hurting the next attempt.
    async fn withdraw(&self, claim: &Claim, attempt: u64, words: &[Option<Word>]) {
        let mut replies = self.nodes.step(leaving(claim, attempt));
        let mut inside = words.iter().filter(|word| matches!(word, Some(Word::In(_)))).count();
        while inside > 0
            && let Some((node, _)) = replies.next().await
        {
            inside -= usize::from(matches!(words[node], Some(Word::In(_))));
        }
    }

    /// Requests a message for when the lock is free. `None` if a majority is free by now, else how long to sleep at most. Fails if
    /// no majority replies, which would send no message either.
    async fn request_wake(&self, claim: &Claim, pace: &mut Pace) -> Result<Option<Duration>> {
        let call = call(&scripts::WAIT, &claim.name).arg(&self.channel).arg(claim.id.to_string());
        let call = call.arg(mode(claim)).arg(milliseconds(claim.ttl));
        let mut replies = self.nodes.request(0..self.nodes.len(), call);
        let (mut free, mut foreign, mut left_ms) = (0, None, u64::MAX);
        let (mut replied, mut last) = (0, None);
        while let Some((_, reply)) = replies.next().await {
            let words = match reply {
                Ok(Value::Array(words)) => words,
                Ok(_) => continue,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            replied += 1;
            let [node_left_ms, rest @ ..] = &words[..] else {
                free += 1;
                continue;
            };
            if let [Value::BulkString(holder), ..] = rest {
                foreign = foreign.max(Some(holder.clone()));
            }
            let node_left_ms = integer(node_left_ms).and_then(|left| u64::try_from(left).ok());
            left_ms = left_ms.min(node_left_ms.unwrap_or(u64::MAX));
        }
        let needed = quorum(self.nodes.len());
        if replied < needed {
            return Err(no_majority("wait for the lock", last));
        }
        if free >= needed {
            return Ok(None);
        }
        let pause = match foreign {
            None => pace.with_ours(claim.ttl),
            Some(holder) => pace.with_foreign(&holder),
        };
        Ok(Some(pause.min(Duration::from_millis(left_ms.saturating_add(1)))))
    }
}

fn split_pause() -> Duration {
    Duration::from_micros(rand::rng().random_range(SPLIT_PAUSE_US))
}

fn read_word(
    reply: RedisResult<Value>,
    free_in: &mut Option<Duration>,
    last: &mut Option<RedisError>,
) -> Word {
    let words = match reply {
        Ok(Value::Array(words)) => words,
        Ok(_) => return Word::Silent,
        Err(error) => {
            *last = Some(error);
            return Word::Silent;
        }
    };
    match words.iter().filter_map(integer).collect::<Vec<i64>>()[..] {
        [1, number] => Word::In(u64::try_from(number).unwrap_or_default()),
        [0, left_ms] => {
            let left = u64::try_from(left_ms).ok().map(Duration::from_millis);
            *free_in = (*free_in).max(left);
            Word::Busy
        }
        _ => Word::Silent,
    }
}

fn read_given(reply: RedisResult<Value>) -> Given {
    let Ok(Value::Array(words)) = reply else { return Given::No };
    match words.iter().filter_map(integer).collect::<Vec<i64>>()[..] {
        [1] => Given::Yes,
        [0, last] => u64::try_from(last).map_or(Given::No, Given::Beyond),
        _ => Given::No,
    }
}

impl Race for RedLock {
    fn abilities(&self) -> Abilities {
        crate::STYLES[0]
    }

    fn clock(&self) -> Clock {
        Clock::Boot
    }

    fn ttl(&self, wanted: Duration) -> Duration {
        wanted
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        let (inner, claim) = (Arc::clone(&self.0), claim.clone());
        in_background("take the lock", async move { inner.attempt(&claim).await }).await
    }

    async fn changed(&self, claim: &Claim, _: Option<Duration>) -> Result<()> {
        let poller = self.0.pollers.enter(&claim.name, claim.id);
        if poller.first().now_or_never().is_none() {
            poller.first().await;
            // The one that polled before has the lock, perhaps. A reader may join it.
            if claim.demand == Demand::Shared {
                return Ok(());
            }
        }
        let wake = self.0.wakes.enter(claim.id);
        let mut pace = Pace::default();
        while let Some(pause) =
            self.0.request_wake(claim, &mut pace).await.inspect_err(|_| poller.failed())?
        {
            poller.polls_after(pause);
            tokio::select! {
                () = wake.message() => break,
                () = poller.called() => {}
                () = Clock::Boot.sleep(pause) => {}
            }
        }
        drop(wake);
        Clock::Boot.sleep(split_pause()).await;
        Ok(())
    }

    async fn keep(&self, renewals: &[Renewal]) -> Result<Kept> {
        let calls = renewals.chunks(LOCKS_PER_SCRIPT).map(keep_call).collect();
        let mut replies = self.0.nodes.request_all(calls);
        let needed = quorum(self.0.nodes.len());
        let (mut round, mut replied, mut last) = (Round::of(renewals), 0, None);
        while let Some((node, reply)) = replies.next().await {
            match reply.and_then(|replies| replies.into_iter().collect::<RedisResult<Vec<Value>>>()) {
                Err(error) => last = Some(error),
                Ok(replies) => {
                    replied += 1;
                    round.count(node, replies);
                }
            }
            if round.kept.iter().all(|count| *count >= needed) {
                break;
            }
        }
        if replied < needed {
            return Err(no_majority("renew", last));
        }
        // Too few have it, though a majority has replied: it is as good as lost, and saying so early is safe.
        let dead = renewals.iter().zip(&round.kept).filter(|(_, count)| **count < needed);
        self.0.leave_to_expire(dead.clone().filter(|(_, count)| **count > 0).map(|(renewal, _)| renewal));
        let dead = dead.map(|(renewal, _)| renewal.claim.id).collect();
        let asked = renewals.iter().zip(&round.asked).filter(|(_, is_asked)| **is_asked);
        let asked = asked.map(|(renewal, _)| renewal.claim.id).collect();
        self.0.regain(round, replies);
        Ok(Kept::new(dead).asked(asked))
    }

    async fn leave(&self, claim: &Claim) -> Result<Left> {
        if self.0.is_left_to_expire(claim.id) {
            return Ok(Left::NotThere);
        }
        let (inner, step) = (Arc::clone(&self.0), leaving(claim, 0));
        in_background("free the lock", async move { inner.leave(step).await }).await
    }

    async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        view::list(&self.0.nodes, prefix, at_most).await
    }

    async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.evict_foreign(name, id.hex().as_str()).await
    }

    async fn evict_foreign(&self, name: &LockName, claim: &str) -> Result<bool> {
        let evict = |value| self.0.at_each(&scripts::EVICT, name, value, "evict a claim");
        if evict(claim.as_bytes()).await? {
            return Ok(true);
        }
        match foreign_bytes(claim) {
            Some(bytes) => evict(&bytes).await,
            None => Ok(false),
        }
    }

    async fn ask(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        self.0.at_each(&scripts::ASK, name, id.hex().as_str().as_bytes(), "ask a holder to release").await
    }

    async fn close(&self) {
        self.0.nodes.close();
    }
}

impl Inner {
    /// Runs a script for one claim at every node; says whether any had it.
    async fn at_each(
        &self,
        script: &'static Script,
        name: &LockName,
        claim: &[u8],
        doing: &'static str,
    ) -> Result<bool> {
        let replies = self.nodes.request(0..self.nodes.len(), call(script, name).arg(claim));
        let (found, replied, last) = self.count(replies).await;
        if replied < quorum(self.nodes.len()) {
            return Err(last.map_or_else(|| no_majority(doing, None), |cause| error(ENGINE, doing, cause)));
        }
        Ok(found > 0)
    }

    /// How many nodes reply 1, how many reply at all, and the last error. Returns when a majority has replied 1, and
    /// lets the others go on alone.
    async fn count(&self, mut replies: Replies<Value>) -> (usize, usize, Option<RedisError>) {
        let (mut yes, mut replied, mut last) = (0, 0, None);
        while let Some((_, reply)) = replies.next().await {
            match reply {
                Ok(reply) => {
                    replied += 1;
                    yes += usize::from(integer(&reply) == Some(1));
                }
                Err(error) => last = Some(error),
            }
            if yes >= quorum(self.nodes.len()) {
                break;
            }
        }
        (yes, replied, last)
    }

    /// Passes a wake on that reached nobody.
    pub(crate) fn pass(self: &Arc<Self>, name: LockName) {
        let lock = Arc::clone(self);
        background::handle().spawn(async move {
            let mut replies = lock.nodes.request(0..lock.nodes.len(), call(&scripts::PASS, &name));
            while replies.next().await.is_some() {}
        });
    }
}
