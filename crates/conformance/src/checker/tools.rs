//! Two small structures that answer 'what was the largest so far' without looking at everything again.

use std::collections::BTreeMap;

/// The largest value since any given moment, of values that arrive in order of time.
#[derive(Default)]
pub(super) struct LargestSince<Value> {
    // Values fall towards the end: what a later and larger one hides can never be the answer again.
    visible: Vec<(u64, Value)>,
}

impl<Value: Ord + Copy> LargestSince<Value> {
    /// Adds a value; `at_ns` never goes back.
    pub(super) fn push(&mut self, at_ns: u64, value: Value) {
        while self.visible.last().is_some_and(|&(_, hidden)| hidden <= value) {
            self.visible.pop();
        }
        self.visible.push((at_ns, value));
    }

    /// The largest value that arrived at `at_ns` or later, with its time.
    pub(super) fn since(&self, at_ns: u64) -> Option<(u64, Value)> {
        let first = self.visible.partition_point(|&(then, _)| then < at_ns);
        self.visible.get(first).copied()
    }
}

/// The largest value among entries of at least any given weight.
#[derive(Default)]
pub(super) struct LargestFromWeight<Value> {
    // Values fall as weights rise: a lighter entry with a smaller value can never be the answer.
    visible: BTreeMap<u32, Value>,
}

impl<Value: Ord + Copy> LargestFromWeight<Value> {
    /// Adds a value with its weight.
    pub(super) fn insert(&mut self, weight: u32, value: Value) {
        if self.from(weight.into()).is_some_and(|hiding| hiding >= value) {
            return;
        }
        while let Some((&lighter, &hidden)) = self.visible.range(..=weight).next_back() {
            if hidden > value {
                break;
            }
            self.visible.remove(&lighter);
        }
        self.visible.insert(weight, value);
    }

    /// The largest value among entries of this weight or more.
    pub(super) fn from(&self, weight: u64) -> Option<Value> {
        let weight = u32::try_from(weight).ok()?;
        self.visible.range(weight..).next().map(|(_, &value)| value)
    }
}
