//! Where a password comes from: the URL, a file or the application. The last two are asked at every connect, so that a
//! password may change while a keeper lives.

use crate::engine::BoxFuture;
use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The reply of an application that is asked for a password.
type Reply = std::result::Result<String, Box<dyn std::error::Error + Send + Sync>>;

/// Asks the application for the password.
#[derive(Clone)]
pub struct PasswordCallback(Arc<dyn Fn() -> BoxFuture<'static, Reply> + Send + Sync>);

impl PasswordCallback {
    /// Calls this at every connect.
    pub fn new<F, E>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::result::Result<String, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let reply = ask();
            Box::pin(async move { reply.await.map_err(Into::into) })
        }))
    }
}

impl fmt::Debug for PasswordCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordCallback")
    }
}

impl PartialEq for PasswordCallback {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PasswordCallback {}

/// The password of a user at an engine's servers.
#[derive(Debug, Clone)]
pub struct Password(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    /// The servers have accepted one from this source before.
    has_worked: AtomicBool,
}

pub(crate) enum Source {
    None,
    Fixed(String),
    File(PathBuf),
    Callback(PasswordCallback),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        match self {
            Self::None => f.write_str("None"),
            Self::Fixed(_) => f.write_str("Fixed"),
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Callback(callback) => callback.fmt(f),
        }
    }
}

impl From<Option<String>> for Password {
    fn from(password: Option<String>) -> Self {
        Self::new(password.map_or(Source::None, Source::Fixed))
    }
}

impl Password {
    pub(crate) fn new(source: Source) -> Self {
        Self(Arc::new(Inner { source, has_worked: AtomicBool::new(false) }))
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        !matches!(self.0.source, Source::None)
    }

    /// The password as it is now. To be called for every connection.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Engine`] if the file cannot be read or the application fails; temporary once a password has worked.
    pub async fn get(&self, engine: &'static str) -> Result<Option<String>> {
        const DOING: &str = "get the password";
        let reply = match &self.0.source {
            Source::None => return Ok(None),
            Source::Fixed(password) => return Ok(Some(password.clone())),
            Source::File(path) => read(path.clone()).await,
            Source::Callback(callback) => (callback.0)().await,
        };
        match reply {
            Ok(password) => Ok(Some(password)),
            Err(error) if self.has_worked() => Err(Error::temporary(engine, DOING, error)),
            Err(error) => Err(Error::permanent(engine, DOING, error)),
        }
    }

    /// A server has accepted it.
    pub fn accepted(&self) {
        self.0.has_worked.store(true, SeqCst);
    }

    /// The error of a server that refuses it. Temporary if the next one may be another: the source is asked at every
    /// connect, and has given a good one before.
    pub fn refused(&self, error: Error) -> Error {
        match error {
            Error::Engine { engine, doing, source, .. } if self.has_worked() && self.may_change() => {
                Error::Engine { engine, doing, temporary: true, source }
            }
            error => error,
        }
    }

    fn has_worked(&self) -> bool {
        self.0.has_worked.load(SeqCst)
    }

    fn may_change(&self) -> bool {
        matches!(self.0.source, Source::File(_) | Source::Callback(_))
    }
}

/// The first line of the file, on a thread that may wait for a disk.
async fn read(path: PathBuf) -> Reply {
    let read = tokio::task::spawn_blocking(move || match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().next().unwrap_or_default().to_owned()),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    });
    read.await?.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_every_time() {
        let path = std::env::temp_dir().join(format!("lockkeeper-password-{}", std::process::id()));
        let password = Password::new(Source::File(path.clone()));
        assert!(!password.get("x").await.unwrap_err().is_temporary());
        for text in ["one\n", "two\r\n", "three"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(password.get("x").await.unwrap().as_deref(), Some(text.trim_end()));
        }
        password.accepted();
        std::fs::remove_file(&path).unwrap();
        assert!(password.get("x").await.unwrap_err().is_temporary());
    }

    #[tokio::test]
    async fn a_refusal_may_pass_if_the_password_may_change() {
        let refused = |password: &Password| password.refused(Error::permanent("x", "log in", "no"));
        let fixed = Password::new(Source::Fixed("secret".into()));
        fixed.accepted();
        assert!(!refused(&fixed).is_temporary());
        let asked = PasswordCallback::new(async || Ok::<_, String>("secret".to_owned()));
        let asked = Password::new(Source::Callback(asked));
        assert_eq!(asked.get("x").await.unwrap().as_deref(), Some("secret"));
        assert!(!refused(&asked).is_temporary(), "none has worked yet");
        asked.accepted();
        assert!(refused(&asked).is_temporary());
        assert!(!format!("{fixed:?}{asked:?}").contains("secret"));
    }
}
