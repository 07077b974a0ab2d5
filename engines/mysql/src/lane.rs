//! The short way for a claim that is one row: to join is one write, and to leave is one.
//!
//! The requests of many tasks travel together, with one commit for all of them. Rows are always taken in the order of
//! their names, so that two batches do not wait for each other.

use crate::config::Settings;
use crate::near::{Near, Writer};
use crate::pool::Pool;
use crate::request::Value;
use crate::wire::Work;
use crate::{several, text};
use futures_util::future::join_all;
use lockkeeper_core::{Batch, Batcher, Claim, ClaimId, LockName, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

/// How many requests of each kind are under way before the next ones gather, and how many travel together.
const AT_ONCE: usize = 4;
const AT_MOST: usize = 64;

/// The statements of a style.
pub(crate) struct Texts {
    /// Takes the `{rows}` that are free.
    pub(crate) join: &'static str,
    /// One of those rows, with a question mark for each value.
    pub(crate) row: &'static str,
    /// Which of `{ids}` have the rows of these `{names}`, and with what number.
    pub(crate) joined: &'static str,
    /// Frees a claim's row.
    pub(crate) leave: &'static str,
    /// Frees many and says which.
    pub(crate) leave_many: &'static str,
    /// The values of a row.
    pub(crate) values: fn(&Joining) -> Vec<Value<'static>>,
    /// Those that take and free one row, in this order.
    pub(crate) alone: LazyLock<[String; 2]>,
}

/// Which of them.
const JOIN: usize = 0;
const LEAVE: usize = 1;

impl Texts {
    /// Makes those of one row.
    pub(crate) fn of_one(&self) -> [String; 2] {
        [self.join.replace("{rows}", self.row), self.leave.to_owned()]
    }
}

/// The short way in and out.
pub(crate) struct Lane {
    joins: Joins,
    together: Batcher<Joins>,
    leaves: Leaves,
    leave_together: Batcher<Leaves>,
}

/// One claim on its way in.
pub(crate) struct Joining {
    pub(crate) claim: Claim,
    /// What the style writes beside it.
    pub(crate) note: String,
    /// Let go when the join is over, not when somebody stops waiting for it.
    pub(crate) _under_way: OwnedMutexGuard<()>,
}

impl Lane {
    /// Batches are sent on the runtime that this is called on.
    pub(crate) fn new(settings: &Arc<Settings>, pool: &Arc<Pool>, texts: &'static Texts) -> Self {
        let (home, near) = (Handle::current(), Near::new(settings, &*texts.alone));
        let writer = Arc::new(Writer { near, pool: Arc::clone(pool) });
        let joins = Joins { writer: Arc::clone(&writer), texts };
        let leaves = Leaves { writer, texts };
        Self {
            together: Batcher::new(joins.clone(), home.clone(), AT_ONCE),
            joins,
            leave_together: Batcher::new(leaves.clone(), home, AT_ONCE),
            leaves,
        }
    }

    /// The number that the claim got if its row was free; else nothing was done.
    pub(crate) async fn join(&self, joining: Arc<Joining>) -> Result<Option<u64>> {
        match self.together.ask(Arc::clone(&joining)).await {
            Some(answer) => answer,
            // The runtime of the batches has ended.
            None => self.joins.one(joining).await,
        }
    }

    /// Whether the claim had a row, and has left.
    pub(crate) async fn leave(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let leaving = || Leaving { name: name.clone(), id };
        match self.leave_together.ask(leaving()).await {
            Some(answer) => answer,
            None => self.leaves.one(&leaving()).await,
        }
    }

    pub(crate) fn close(&self) {
        self.joins.writer.near.close();
    }
}

#[derive(Clone)]
struct Joins {
    writer: Arc<Writer>,
    texts: &'static Texts,
}

impl Batch for Joins {
    type Ask = Arc<Joining>;
    type Answer = Result<Option<u64>>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, asks: &[Arc<Joining>]) -> Vec<Result<Option<u64>>> {
        if let [ask] = asks {
            return vec![self.one(Arc::clone(ask)).await];
        }
        match self.many(asks.to_vec()).await {
            Ok(numbers) => asks.iter().map(|ask| Ok(numbers.get(&ask.claim.id).copied())).collect(),
            // One must not fail for the others.
            Err(_) => join_all(asks.iter().map(|ask| self.one(Arc::clone(ask)))).await,
        }
    }
}

impl Joins {
    async fn one(&self, joining: Arc<Joining>) -> Result<Option<u64>> {
        let values = (self.texts.values)(&joining);
        let written = self.writer.write("take the lock", JOIN, values, joining).await?;
        Ok(Some(written.number).filter(|number| *number > 0))
    }

    /// What those got whose rows were free.
    async fn many(&self, joinings: Vec<Arc<Joining>>) -> Result<HashMap<ClaimId, u64>> {
        let mut in_order: Vec<&Joining> = joinings.iter().map(|joining| &**joining).collect();
        in_order.sort_by(|one, other| one.claim.name.cmp(&other.claim.name));
        let rows: Vec<String> = in_order
            .iter()
            .map(|joining| text::fill(self.texts.row, &(self.texts.values)(joining)))
            .collect();
        let names = text::names(in_order.iter().map(|joining| joining.claim.name.as_str()));
        let ids = text::ids(in_order.iter().map(|joining| joining.claim.id));
        let join = self.texts.join.replace("{rows}", &rows.join(","));
        let joined = self.texts.joined.replace("{names}", &names).replace("{ids}", &ids);
        let statements = format!("{join};\n{joined}");
        let work: Work<(Vec<(String, u64)>, u64)> = Box::new(move |conn| {
            let (_under_way, statements) = (&joinings, statements.clone());
            Box::pin(several::run(conn, statements))
        });
        let (rows, _) = self.writer.pool.run("take locks", work).await?;
        Ok(rows.into_iter().filter_map(|(id, number)| Some((id.parse().ok()?, number))).collect())
    }
}

/// One claim on its way out.
struct Leaving {
    name: LockName,
    id: ClaimId,
}

#[derive(Clone)]
struct Leaves {
    writer: Arc<Writer>,
    texts: &'static Texts,
}

impl Batch for Leaves {
    type Ask = Leaving;
    type Answer = Result<bool>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, asks: &[Leaving]) -> Vec<Result<bool>> {
        if let [ask] = asks {
            return vec![self.one(ask).await];
        }
        match self.many(asks).await {
            Ok(left) => asks.iter().map(|ask| Ok(left.contains(&ask.id))).collect(),
            Err(_) => join_all(asks.iter().map(|ask| self.one(ask))).await,
        }
    }
}

impl Leaves {
    async fn one(&self, leaving: &Leaving) -> Result<bool> {
        let values = vec![leaving.name.as_str().to_owned().into(), leaving.id.to_string().into()];
        Ok(self.writer.write("free the lock", LEAVE, values, ()).await?.changed > 0)
    }

    /// Those who had a row, and have left.
    async fn many(&self, leavings: &[Leaving]) -> Result<HashSet<ClaimId>> {
        let names = text::names(leavings.iter().map(|leaving| leaving.name.as_str()));
        let ids = text::ids(leavings.iter().map(|leaving| leaving.id));
        let statements = self.texts.leave_many.replace("{names}", &names).replace("{ids}", &ids);
        let work: Work<(Vec<String>, u64)> =
            Box::new(move |conn| Box::pin(several::run(conn, statements.clone())));
        let (rows, _) = self.writer.pool.run("free locks", work).await?;
        Ok(rows.iter().filter_map(|id| id.parse().ok()).collect())
    }
}
