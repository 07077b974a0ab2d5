//! The session style: a lock is a row that an open transaction has selected for update.

use crate::held::Style;
use crate::holders::Texts;
use crate::styles::SESSION;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_session.sql");

pub(crate) static STYLE: Style = Style {
    abilities: SESSION,
    statements: [include_str!("sql/session_take.sql"), include_str!("sql/session_free.sql")],
    // Not a time here: the procedure only asks whether to wait.
    wait_seconds: 1,
    texts: Texts {
        list: include_str!("sql/session_list.sql"),
        find: include_str!("sql/session_find.sql"),
        clean: include_str!("sql/session_clean.sql"),
    },
};
