//! Statements with lists of names and ids, which the server's protocol cannot take as parameters.

/// A list of names as hexadecimal literals, so that whatever they contain is data.
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let literal = |name: &str| {
        let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("x'{digits}'")
    };
    names.into_iter().map(literal).collect::<Vec<_>>().join(",")
}

/// A list of claim ids, which are hexadecimal digits.
pub(crate) fn ids(ids: impl IntoIterator<Item = lockkeeper_core::ClaimId>) -> String {
    ids.into_iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_data_whatever_it_contains() {
        assert_eq!(super::names(["a'b", "ü"]), "x'612762',x'c3bc'");
    }
}
