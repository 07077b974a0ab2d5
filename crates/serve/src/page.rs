//! The page: plain files that are part of the program.

use crate::app::App;
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The path of each file, its type and its content.
const FILES: [(&str, &str, &str); 10] = [
    ("/", HTML, include_str!("../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/page/app.js", SCRIPT, include_str!("../page/app.js")),
    ("/page/api.js", SCRIPT, include_str!("../page/api.js")),
    ("/page/dom.js", SCRIPT, include_str!("../page/dom.js")),
    ("/page/update.js", SCRIPT, include_str!("../page/update.js")),
    ("/page/locks.js", SCRIPT, include_str!("../page/locks.js")),
    ("/page/lock.js", SCRIPT, include_str!("../page/lock.js")),
    ("/page/graph.js", SCRIPT, include_str!("../page/graph.js")),
];

/// Nothing from elsewhere, and no page of another site around it. Pictures set styles of their own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes of the page's files.
pub(crate) fn router() -> Router<App> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(async move || file(kind, content)))
    })
}

fn file(kind: &'static str, content: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and holders come from other clients: what makes HTML, styles or code of a text is not used at all, and the browser
    /// would refuse a script that came in by another way.
    #[test]
    fn no_text_becomes_html_or_code() {
        const MAKES_HTML: [&str; 11] = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "setHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "srcdoc",
            "eval(",
            "new Function",
            "javascript:",
        ];
        for (path, kind, content) in FILES {
            for word in MAKES_HTML {
                assert!(!content.contains(word), "{path} uses {word}");
            }
            let has_inline = kind == HTML && (content.contains("<script>") || content.contains(" onclick="));
            assert!(!has_inline, "{path} has a script of its own, which the policy refuses");
        }
        assert!(POLICY.contains("default-src 'none'") && POLICY.contains("script-src 'self';"), "{POLICY}");
        // The one place that makes elements: children are appended as text, and a listener is never a text.
        let dom = FILES.iter().find(|(path, ..)| *path == "/page/dom.js").expect("dom.js").2;
        assert!(dom.contains("made.append(") && dom.contains("made[key] = value"), "look at it again");
    }
}
