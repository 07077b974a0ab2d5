//! `lockkeeper mcp`: the locks as tools for agents, over the Model Context Protocol.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, Outcome, SUCCESS, UNAVAILABLE};
use crate::signals::Signals;
use crate::{json, location, waiting};
use clap::Args;
use lockkeeper::views::Demand;
use lockkeeper::{Guard, Holder, Keeper, MultiLock, State, Wanted};
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{Json, RoleServer, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const EXAMPLES: &str = "\
Examples:
  lockkeeper mcp                              locks in the user's files, for agents on this machine
  lockkeeper mcp --engine redis://cache       for agents on several machines
  claude mcp add locks -- lockkeeper mcp      makes the tools known to an agent

The tools are acquire, renew, release and list. Everything is released when the agent goes.";

const INSTRUCTIONS: &str = "\
Locks shared with other agents, programs and machines. Before you use something that others must not use at the same time \
(a branch, a port, a device, a database), acquire a lock whose name says what it is, such as repo/main or port/8080; release \
it when you are done. A hold ends at `until`: renew it before, and before every step that must not run twice. If a reply says \
that the lock is lost, stop: somebody else may hold it. Pass `token` along with writes to systems that check it: it grows with \
every grant.";

/// How long a wait or a hold may be.
const WAIT_SECONDS: RangeInclusive<u64> = 0..=3600;
const HOLD_SECONDS: RangeInclusive<u64> = 1..=86_400;
/// An agent that takes more has lost count of them.
const MAX_HOLDS: usize = 100;

/// Offer the locks as tools to agents (Model Context Protocol on standard input and output)
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    /// Name shown to operators as the holder [default: the agent's, as it gives it]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,
}

impl Mcp {
    /// Serves one agent until it goes or a signal comes.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let mut signals = Signals::ending()?;
        let keeper = options.connect(self.holder.clone()).await?;
        let tools = Tools {
            keeper: keeper.clone(),
            named: self.holder.is_some(),
            holds: Arc::default(),
            router: Tools::tool_router(),
        };
        let holds = Arc::clone(&tools.holds);
        let failed = |error: String| Failure::new(UNAVAILABLE, format!("the agent's side: {error}"));
        let serving = async {
            let service =
                tools.serve(rmcp::transport::stdio()).await.map_err(|error| failed(error.to_string()))?;
            service.waiting().await.map_err(|error| failed(error.to_string()))
        };
        let outcome = tokio::select! {
            ended = serving => ended.map(|_| SUCCESS),
            signal = signals.next() => Err(Failure::by_signal(signal.as_raw())),
        };
        holds.release_all().await;
        keeper.close().await;
        outcome
    }
}

/// The tools of one agent.
#[derive(Clone)]
struct Tools {
    keeper: Keeper,
    /// The user has said what to call the holder.
    named: bool,
    holds: Arc<Holds>,
    router: ToolRouter<Self>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Acquire {
    /// Name of the lock, such as repo/main or port/8080.
    name: String,
    /// exclusive; shared with other readers; or K/N, K of N permits, for which every user of the name gives the same N.
    #[serde(default = "exclusive")]
    mode: String,
    /// How long to wait for it, up to an hour; 0 to try once.
    #[serde(default = "default_wait")]
    wait_seconds: u64,
    /// How long to hold it unless it is renewed or released, up to a day.
    #[serde(default = "default_hold")]
    hold_seconds: u64,
}

fn exclusive() -> String {
    "exclusive".into()
}

fn default_wait() -> u64 {
    30
}

fn default_hold() -> u64 {
    600
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Renew {
    /// The hold, as acquire has given it.
    hold: String,
    /// How long to hold it from now on, up to a day.
    #[serde(default = "default_hold")]
    hold_seconds: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Release {
    /// The hold, as acquire has given it.
    hold: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only locks whose name begins with this.
    #[serde(default)]
    prefix: String,
}

/// What came of the wish for a lock.
#[derive(Serialize, JsonSchema)]
struct Acquired {
    /// false: others held it for the whole wait.
    acquired: bool,
    /// The hold, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<HoldView>,
    /// Who held it at the end of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<String>,
}

/// A hold of this agent.
#[derive(Serialize, JsonSchema)]
struct HoldView {
    /// What renew and release want.
    hold: String,
    name: String,
    /// exclusive, shared or K/N.
    mode: String,
    /// The fencing token: it grows with every grant of this lock.
    token: u64,
    /// held; uncertain: the engine does not reply, and the lock is yours only for valid_seconds; lost: stop.
    state: &'static str,
    /// When the hold ends unless it is renewed or released before.
    until: String,
    /// How long it is yours even if no renewal succeeds from now on.
    valid_seconds: f64,
}

/// A hold that is over.
#[derive(Serialize, JsonSchema)]
struct Released {
    released: String,
    name: String,
}

/// Locks in use.
#[derive(Serialize, JsonSchema)]
struct Locks {
    /// Every lock with its claims: holders first, then those who wait, in their order.
    locks: Vec<serde_json::Value>,
    /// What this agent holds.
    holds: Vec<HoldView>,
}

#[tool_router(router = tool_router)]
impl Tools {
    #[tool(
        description = "Wait for a lock and hold it. Returns the hold with its fencing token and the time at which it ends, or \
                          acquired=false and who holds it."
    )]
    async fn acquire(
        &self,
        Parameters(wanted): Parameters<Acquire>,
        context: RequestContext<RoleServer>,
    ) -> Result<Json<Acquired>, String> {
        let demand = demand(&wanted.mode)?;
        let wait = seconds("wait_seconds", wanted.wait_seconds, WAIT_SECONDS)?;
        let duration = seconds("hold_seconds", wanted.hold_seconds, HOLD_SECONDS)?;
        self.holds.check_room()?;
        let keeper = self.keeper_for(&context)?;
        let lock = MultiLock::new([Wanted::new(&keeper, &wanted.name, demand)]);
        let acquiring =
            async { if wait.is_zero() { lock.try_lock().await } else { lock.lock_within(wait).await } };
        let guard = tokio::select! {
            guard = acquiring => guard.map_err(text)?,
            () = context.ct.cancelled() => return Err("the wait was cancelled".into()),
        };
        let Some(guard) = guard else {
            let lock = waiting::find(&keeper, &wanted.name).await;
            return Ok(Json(Acquired {
                acquired: false,
                hold: None,
                held_by: lock.as_ref().map(waiting::held_by),
            }));
        };
        let hold = self.holds.enter(guard, wanted.name, demand, duration)?;
        Ok(Json(Acquired { acquired: true, hold: Some(hold), held_by: None }))
    }

    #[tool(
        description = "Hold a lock for longer: hold_seconds from now on. An error that says the lock is lost means: stop."
    )]
    async fn renew(&self, Parameters(wanted): Parameters<Renew>) -> Result<Json<HoldView>, String> {
        let duration = seconds("hold_seconds", wanted.hold_seconds, HOLD_SECONDS)?;
        self.holds.ask(&wanted.hold, |reply| Request::Renew(duration, reply)).await?.map(Json)
    }

    #[tool(description = "Release a lock, so that the next in the queue gets it.")]
    async fn release(&self, Parameters(wanted): Parameters<Release>) -> Result<Json<Released>, String> {
        let name = self.holds.ask(&wanted.hold, Request::Release).await??;
        Ok(Json(Released { released: wanted.hold, name }))
    }

    #[tool(
        description = "The locks in use, who holds them and who waits, and the holds of this agent.",
        annotations(read_only_hint = true)
    )]
    async fn list(&self, Parameters(wanted): Parameters<List>) -> Result<Json<Locks>, String> {
        let locks =
            location::locks(&self.keeper, &wanted.prefix).await.map_err(|failure| failure.to_string())?;
        let views = json::Lock::list(&self.keeper, &locks);
        let locks = views.iter().filter_map(|lock| serde_json::to_value(lock).ok()).collect();
        let mut holds = self.holds.all().await;
        holds.retain(|hold| hold.name.starts_with(&wanted.prefix));
        Ok(Json(Locks { locks, holds }))
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lockkeeper", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }
}

impl Tools {
    /// The keeper whose claims show the agent's name to operators.
    fn keeper_for(&self, context: &RequestContext<RoleServer>) -> Result<Keeper, String> {
        let agent = context.peer.peer_info().map(|info| info.client_info.name.clone()).unwrap_or_default();
        if self.named || agent.is_empty() {
            return Ok(self.keeper.clone());
        }
        self.keeper.for_holder(Holder::here(agent)).map_err(text)
    }
}

fn text(error: lockkeeper::Error) -> String {
    error.to_string()
}

fn demand(mode: &str) -> Result<Demand, String> {
    mode.parse().map_err(|_| format!("mode is 'exclusive', 'shared' or permits such as '1/4', not '{mode}'"))
}

fn seconds(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<Duration, String> {
    if range.contains(&value) {
        Ok(Duration::from_secs(value))
    } else {
        Err(format!("{field} is from {} to {}, not {value}", range.start(), range.end()))
    }
}

/// What an agent holds.
#[derive(Default)]
struct Holds(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    tasks: BTreeMap<u64, mpsc::Sender<Request>>,
}

/// What is asked of the task that keeps a hold.
enum Request {
    View(oneshot::Sender<HoldView>),
    Renew(Duration, oneshot::Sender<Result<HoldView, String>>),
    Release(oneshot::Sender<Result<String, String>>),
}

impl Holds {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_room(&self) -> Result<(), String> {
        match self.table().tasks.len() {
            MAX_HOLDS.. => Err(format!("this agent has {MAX_HOLDS} holds: release some; 'list' shows them")),
            _ => Ok(()),
        }
    }

    /// Starts the task that keeps a hold.
    fn enter(
        self: &Arc<Self>,
        guard: Guard,
        name: String,
        demand: Demand,
        duration: Duration,
    ) -> Result<HoldView, String> {
        let token = guard.token().map_err(text)?.0;
        let (sender, requests) = mpsc::channel(1);
        let mut table = self.table();
        table.last += 1;
        let number = table.last;
        table.tasks.insert(number, sender);
        drop(table);
        let held = Held { number, name, mode: demand.to_string(), token, ends: Ends::after(duration), guard };
        let view = held.view();
        let holds = Arc::clone(self);
        tokio::spawn(async move {
            held.keep(requests).await;
            holds.table().tasks.remove(&number);
        });
        Ok(view)
    }

    /// Asks the task of a hold.
    async fn ask<T>(
        &self,
        hold: &str,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, String> {
        let over = || {
            format!(
                "there is no hold '{hold}': it was released, or its time has ended and somebody else may hold the lock; \
                 acquire it again"
            )
        };
        let task = hold.parse().ok().and_then(|number: u64| self.table().tasks.get(&number).cloned());
        let task = task.ok_or_else(over)?;
        let (reply, replied) = oneshot::channel();
        task.send(request(reply)).await.map_err(|_| over())?;
        replied.await.map_err(|_| over())
    }

    fn numbers(&self) -> Vec<String> {
        self.table().tasks.keys().map(u64::to_string).collect()
    }

    async fn all(&self) -> Vec<HoldView> {
        let mut all = Vec::new();
        for number in self.numbers() {
            all.extend(self.ask(&number, Request::View).await.ok());
        }
        all
    }

    /// The agent has gone.
    async fn release_all(&self) {
        for number in self.numbers() {
            // What is lost by now needs no release.
            let _ = self.ask(&number, Request::Release).await;
        }
    }
}

/// When a hold ends: for the task, and for people.
#[derive(Clone, Copy)]
struct Ends {
    at: Instant,
    shown: SystemTime,
}

impl Ends {
    fn after(duration: Duration) -> Self {
        Self { at: Instant::now() + duration, shown: SystemTime::now() + duration }
    }
}

struct Held {
    number: u64,
    name: String,
    mode: String,
    token: u64,
    ends: Ends,
    guard: Guard,
}

impl Held {
    fn view(&self) -> HoldView {
        HoldView {
            hold: self.number.to_string(),
            name: self.name.clone(),
            mode: self.mode.clone(),
            token: self.token,
            state: match self.guard.state() {
                State::Held => "held",
                State::Uncertain => "uncertain",
                State::Lost => "lost",
            },
            until: humantime::format_rfc3339_seconds(self.ends.shown).to_string(),
            valid_seconds: self.guard.valid_for().as_secs_f64(),
        }
    }

    /// Keeps the hold until it is released or its time ends. A lost one stays until then, so that the agent is told.
    async fn keep(mut self, mut requests: mpsc::Receiver<Request>) {
        loop {
            let request = tokio::select! {
                request = requests.recv() => request,
                () = tokio::time::sleep_until(self.ends.at) => None,
            };
            // A reply that nobody waits for any more is not missed.
            match request {
                Some(Request::View(reply)) => _ = reply.send(self.view()),
                Some(Request::Renew(duration, reply)) => _ = reply.send(self.renew(duration)),
                Some(Request::Release(reply)) => {
                    let name = self.name;
                    let released = self.guard.release().await;
                    _ = reply.send(released.map(|()| name).map_err(text));
                    return;
                }
                None => {
                    _ = self.guard.release().await;
                    return;
                }
            }
        }
    }

    fn renew(&mut self, duration: Duration) -> Result<HoldView, String> {
        if self.guard.state() == State::Lost {
            return Err(format!(
                "the lock {} is lost: somebody else may hold it. Stop what you do under it, release this hold, and acquire \
                 the lock again",
                self.name
            ));
        }
        self.ends = Ends::after(duration);
        Ok(self.view())
    }
}
