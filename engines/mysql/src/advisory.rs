//! The advisory style: the server's own user locks (GET_LOCK), many of them on one connection.

use crate::held::Style;
use crate::holders::Texts;
use crate::styles::ADVISORY;

pub(crate) const SCHEMA: &str = include_str!("sql/schema_advisory.sql");

pub(crate) static STYLE: Style = Style {
    abilities: ADVISORY,
    statements: [include_str!("sql/advisory_take.sql"), include_str!("sql/advisory_free.sql")],
    // Then another wait begins.
    wait_seconds: 30,
    texts: Texts {
        list: include_str!("sql/advisory_list.sql"),
        find: include_str!("sql/advisory_find.sql"),
        clean: include_str!("sql/advisory_clean.sql"),
    },
};
