//! The vote: when a claim holds on a majority, and which token it has. Pure, and model-checked in `model`.
//! Only RedLock votes.
//!
//! Every node keeps a number per lock. It raises it when it lets a claim in, and remembers for whom. The token is the
//! number that a majority has given to *this* claim: at once if a majority gave the same, else after a second round in
//! which the nodes that let the claim in are asked for the largest. A
//! node gives a number to one claim only and never goes back. Two majorities meet in a node, so
//!
//! - no two claims get the same token, and
//! - a claim that is tried after another one was granted gets a larger one,
//!
//! even if leases end too early or messages are lost. A node that forgets breaks it, as it breaks the lock itself.

/// More than half.
pub(crate) fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What a node says to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    /// It lets the claim in, with this number.
    In(u64),
    /// Somebody else is there.
    Busy,
    /// Nothing: it is down, cut off or too slow.
    Silent,
}

/// What the words so far mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for more.
    Open,
    /// The claim holds, with this token.
    Holds(u64),
    /// A majority let it in, but no number has a majority: ask for this one.
    Raise(u64),
    /// There is no majority for it.
    Fails,
}

/// Judges the words of the first round; `None` stands for a node that may still speak.
pub(crate) fn first_round(words: &[Option<Word>]) -> Verdict {
    let needed = quorum(words.len());
    let numbers = || {
        words.iter().filter_map(|word| if let Some(Word::In(number)) = word { Some(*number) } else { None })
    };
    let (inside, open) = (numbers().count(), words.iter().filter(|word| word.is_none()).count());
    let Some(largest) = numbers().max().filter(|_| inside >= needed) else {
        return if inside + open < needed { Verdict::Fails } else { Verdict::Open };
    };
    let count = |number| numbers().filter(|own| *own == number).count();
    match numbers().max_by_key(|number| count(*number)) {
        Some(number) if count(number) >= needed => Verdict::Holds(number),
        // The number of a majority settles it without a second round, and an attempt made twice gets the same token.
        Some(number) if count(number) + open >= needed => Verdict::Open,
        _ => Verdict::Raise(largest),
    }
}

/// What a node says when it is asked for a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Given {
    /// The claim has it.
    Yes,
    /// Its own is larger, or this one is another claim's: its last number.
    Beyond(u64),
    /// Nothing, or the claim is not there any more.
    No,
}

/// Judges a further round for this number; `None` stands for a node that may still speak.
pub(crate) fn further_round(number: u64, given: &[Option<Given>]) -> Verdict {
    let needed = quorum(given.len());
    let count = |wanted: fn(&Option<Given>) -> bool| given.iter().filter(|word| wanted(word)).count();
    let yes = count(|word| matches!(word, Some(Given::Yes)));
    let open = count(Option::is_none);
    if yes >= needed {
        return Verdict::Holds(number);
    }
    if yes + open >= needed {
        return Verdict::Open;
    }
    let beyond =
        given.iter().filter_map(|word| if let Some(Given::Beyond(last)) = word { Some(*last) } else { None });
    let inside = count(|word| matches!(word, Some(Given::Yes | Given::Beyond(_))));
    match beyond.max() {
        Some(last) if inside + open >= needed => Verdict::Raise(last.max(number) + 1),
        _ => Verdict::Fails,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Given::{Beyond, No, Yes};
    use Word::{Busy, In, Silent};

    #[test]
    fn a_majority_of_one_number_holds_at_once() {
        assert_eq!(first_round(&[Some(In(7)), Some(In(7)), None]), Verdict::Holds(7));
        assert_eq!(first_round(&[Some(In(7)), Some(In(7)), Some(Busy)]), Verdict::Holds(7));
    }

    #[test]
    fn the_order_of_the_words_does_not_matter() {
        assert_eq!(first_round(&[Some(In(7)), Some(In(6)), None]), Verdict::Open);
        assert_eq!(first_round(&[Some(In(7)), Some(In(6)), Some(In(6))]), Verdict::Holds(6));
        assert_eq!(
            first_round(&[Some(In(7)), Some(In(6)), Some(In(5)), None, Some(Busy)]),
            Verdict::Raise(7)
        );
    }

    #[test]
    fn different_numbers_need_a_second_round() {
        assert_eq!(first_round(&[Some(In(6)), Some(In(7)), Some(Silent)]), Verdict::Raise(7));
        assert_eq!(further_round(7, &[Some(Yes), None, Some(No)]), Verdict::Open);
        assert_eq!(further_round(7, &[Some(Yes), Some(Yes), None]), Verdict::Holds(7));
        assert_eq!(further_round(7, &[Some(Yes), Some(Beyond(9)), Some(No)]), Verdict::Raise(10));
        assert_eq!(further_round(7, &[Some(Yes), Some(No), Some(No)]), Verdict::Fails);
    }

    #[test]
    fn no_majority_fails_as_soon_as_it_is_certain() {
        assert_eq!(first_round(&[Some(In(1)), None, None]), Verdict::Open);
        assert_eq!(first_round(&[Some(Busy), Some(Silent), None]), Verdict::Fails);
        assert_eq!(first_round(&[Some(In(1)), Some(In(1)), Some(Busy), Some(Busy), None]), Verdict::Open);
    }
}
