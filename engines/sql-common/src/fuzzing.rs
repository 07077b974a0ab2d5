//! What `fuzz/` feeds with rows of claims that somebody else may have written.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::listing::{ClaimRow, lock_views};
use lockkeeper_core::Demand;

/// Five lines for each row: name, id, demand, holder, and the numbers between spaces.
pub fn rows(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<&str> = text.split('\n').collect();
    let rows: Vec<ClaimRow> = lines.chunks_exact(5).map(row).collect();
    let views = lock_views(rows.iter().cloned());
    let names = views.iter().flat_map(|lock| lock.claims.iter().map(|_| lock.name.as_str()));
    assert!(names.eq(rows.iter().map(|row| row.name.as_str())), "every row is shown, in its order");
    let claims = views.iter().flat_map(|lock| &lock.claims).zip(&rows);
    for (claim, row) in claims {
        assert_eq!(claim.id, row.id);
        assert_eq!(claim.demand, row.demand.parse().unwrap_or(Demand::Exclusive));
        assert!(claim.token.is_none_or(|token| i64::try_from(token.0).is_ok()));
    }
}

fn row(lines: &[&str]) -> ClaimRow {
    let mut numbers = lines[4].split(' ').map(|word| word.parse().ok());
    let mut number = || numbers.next().flatten();
    ClaimRow {
        name: lines[0].into(),
        id: lines[1].into(),
        demand: lines[2].into(),
        holder: lines[3].into(),
        token: number().unwrap_or_default(),
        age_ms: number().unwrap_or_default(),
        held_ms: number(),
        left_ms: number(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_of_the_corpus() {
        super::corpus::feed("sql_rows", super::rows);
    }
}
