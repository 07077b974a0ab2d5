//! The comparison that every fence makes: not smaller than the largest token seen.

use lockkeeper_core::Token;

/// The largest token a resource has seen. Belongs to the resource, and must live as long as it does.
///
/// ```
/// use lockkeeper_core::Token;
/// use lockkeeper_fencing::Fence;
/// let mut fence = Fence::default();
/// fence.admit(Token(33))?; // the first read raises it …
/// fence.admit(Token(33))?; // … and the same holder goes on
/// fence.admit(Token(34))?; // the next holder
/// assert!(fence.admit(Token(33)).is_err()); // the first one wakes up and is refused
/// # Ok::<(), lockkeeper_fencing::Stale>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fence {
    highest: Option<Token>,
}

impl Fence {
    /// A fence that has seen this token, as it was stored.
    pub fn at(highest: Token) -> Self {
        Self { highest: Some(highest) }
    }

    /// The largest token seen.
    pub fn highest(&self) -> Option<Token> {
        self.highest
    }

    /// Lets an access pass and raises the fence to its token; to be asked at every access, reads included.
    ///
    /// The comparison and the access must be one step for the resource: under the lock of its own, in the same
    /// transaction, in the same script.
    ///
    /// # Errors
    /// [`Stale`] if a larger token was here before.
    pub fn admit(&mut self, token: Token) -> Result<(), Stale> {
        match self.highest {
            Some(highest) if token < highest => Err(Stale { token, highest }),
            _ => {
                self.highest = Some(token);
                Ok(())
            }
        }
    }
}

/// The access came too late: a later holder of the lock has been here. Stop, and do not try again with this token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token {token} is stale: a holder with the token {highest} has been here since")]
#[non_exhaustive]
pub struct Stale {
    /// The token that was refused.
    pub token: Token,
    /// The largest token the resource has seen.
    pub highest: Token,
}

/// Why an access to a fenced resource did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused<E> {
    /// **Stop**: somebody else has held the lock since.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The resource itself failed.
    #[error("the fenced resource failed: {0}")]
    Resource(#[source] E),
}

impl<E> Refused<E> {
    /// Whether the token was too old.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_only_rises() {
        let mut fence = Fence::default();
        assert_eq!(fence.highest(), None);
        for token in [5, 5, 7] {
            fence.admit(Token(token)).unwrap();
        }
        assert_eq!(fence.admit(Token(6)), Err(Stale { token: Token(6), highest: Token(7) }));
        assert_eq!(fence, Fence::at(Token(7)));
    }
}
