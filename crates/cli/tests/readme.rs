//! The README is true, narrow enough to be read, and says the same in Chinese; its picture is of a real run.

mod support;

use serde_json::Value;
use std::path::PathBuf;
use support::Place;

const LANGUAGES: [&str; 2] = ["README.md", "README.zh-CN.md"];
const STYLES: &str = "docs/engines.md";
const TABLES_BEGIN: &str = "checked by a test) -->\n";
const TABLES_END: &str = "<!-- engines:end";

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether the files are to be written as they should be: `LOCKKEEPER_RENEW=1 cargo test -p lockkeeper-cli --test readme`.
fn is_to_be_renewed() -> bool {
    std::env::var_os("LOCKKEEPER_RENEW").is_some()
}

/// What stands between the marks of a page.
fn table(page: &str) -> &str {
    page.split(TABLES_BEGIN).nth(1).and_then(|rest| rest.split(TABLES_END).next()).expect("the marks")
}

#[test]
fn the_tables_of_engines_are_those_the_binary_prints_and_fit_a_page() {
    let printed = String::from_utf8(Place::new().output(["engines", "--markdown"]).stdout).unwrap();
    for line in printed.lines() {
        assert!(line.chars().count() < 100, "{line}");
    }
    let (styles, engines) = printed.split_once("\n\n").expect("two tables");
    let (styles, engines) = (format!("{styles}\n"), engines.to_owned());
    let [english, chinese] = LANGUAGES;
    for (path, printed) in [(english, &engines), (chinese, &engines), (STYLES, &styles)] {
        let page = read(path);
        if is_to_be_renewed() {
            let (before, rest) = page.split_once(TABLES_BEGIN).unwrap();
            let after = rest.split_once(TABLES_END).unwrap().1;
            let renewed = format!("{before}{TABLES_BEGIN}{printed}{TABLES_END}{after}");
            std::fs::write(root().join(path), renewed).unwrap();
        } else {
            assert_eq!(table(&page), printed, "{path}: set LOCKKEEPER_RENEW=1 to renew it");
        }
    }
}

/// What does not depend on the language: code, tables' rows, headings' depths, and of each section in any order what is
/// written as code, and where links lead.
fn bones(readme: &str) -> Vec<String> {
    let (mut bones, mut inline) = (Vec::new(), Vec::new());
    let mut in_code = false;
    for line in readme.lines() {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence || line.starts_with("<!--") {
            bones.push(line.into());
            continue;
        }
        if line.starts_with('#') {
            inline.sort();
            bones.append(&mut inline);
        }
        if line.starts_with('|') {
            bones.push(format!("a row of {}", line.matches('|').count()));
        }
        if line.starts_with('#') || line.starts_with("- ") {
            bones.push(line.split(' ').next().unwrap().into());
        }
        inline.extend(line.split('`').skip(1).step_by(2).map(|code| format!("`{code}`")));
        inline.extend(line.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()));
    }
    bones.append(&mut inline);
    bones.retain(|bone| !LANGUAGES.contains(&bone.as_str()));
    bones
}

#[test]
fn both_languages_have_the_same_commands_code_tables_and_links() {
    let [english, chinese] = LANGUAGES.map(|path| bones(&read(path)));
    for (one, other) in english.iter().zip(&chinese) {
        assert_eq!(one, other);
    }
    assert_eq!(english.len(), chinese.len());
}

#[test]
fn what_goes_wrong_elsewhere_is_shown_by_tests_that_are_there() {
    let readme = read("README.md");
    let mut shown = 0;
    for rest in readme.split("[`").skip(1) {
        let (name, rest) = rest.split_once("`](").expect("a link");
        let path = rest.split(')').next().unwrap();
        assert!(read(path).contains(&format!("fn {name}(")), "{path} has no {name}");
        shown += 1;
    }
    assert_eq!(shown, 5);
}

#[test]
fn the_first_screens_are_two() {
    let readme = read("README.md");
    let lines_before =
        |start: &str| readme.lines().position(|line| line.starts_with(start)).unwrap_or(usize::MAX);
    for (start, most) in [
        ("![", 10),
        ("## Find it", 10),
        ("After `cargo add", 25),
        ("lockkeeper run --once-per", 45),
        ("## Engines", 100),
    ] {
        assert!(
            lines_before(start) <= most,
            "{} lines before '{start}'; at most {most}",
            lines_before(start)
        );
    }
}

/// Draws what `show --json` has printed: a box per claim, in the order of the queue.
fn draw(lock: &Value) -> String {
    let claims = lock["claims"].as_array().unwrap();
    let (width, gap, left, top) = (250, 30, 20, 56);
    let whole = left * 2 + claims.len() * width + (claims.len() - 1) * gap;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} 196\" width=\"{whole}\" height=\"196\" \
         font-family=\"sans-serif\" font-size=\"14\" role=\"img\">\n\
         <title>The queue of the lock {name}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{left}\" y=\"34\" font-family=\"monospace\" fill=\"#333333\">$ lockkeeper show {name}</text>\n",
        name = lock["name"].as_str().unwrap(),
    );
    for (place, claim) in claims.iter().enumerate() {
        let x = left + place * (width + gap);
        let holds = claim["standing"] == "holds";
        let (fill, edge) = if holds { ("#d5ecd8", "#2b7a3d") } else { ("#f2f2f2", "#8a8a8a") };
        let standing = match claim["token"].as_u64() {
            Some(token) => format!("holds, token {token}"),
            None => format!("waits for {place}"),
        };
        let line = |y: usize, size: &str, text: &str| {
            assert!(text.len() * 7 <= width - 28, "{text} is wider than its box");
            format!("<text x=\"{}\" y=\"{y}\"{size} fill=\"#222222\">{text}</text>\n", x + 14)
        };
        svg += &format!(
            "<rect x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"92\" rx=\"8\" fill=\"{fill}\" stroke=\"{edge}\" \
             stroke-width=\"2\"/>\n"
        );
        let who = claim["who"].as_str().unwrap();
        svg += &line(top + 26, " font-weight=\"bold\"", &format!("{}  {who}", place + 1));
        svg += &line(top + 51, " font-size=\"12\"", &standing);
        svg += &line(top + 76, " font-size=\"12\"", &format!("process {}", claim["pid"]));
        if place > 0 {
            let (from, y) = (x - 4, top + 46);
            let to = x - gap + 4;
            svg += &format!(
                "<path d=\"M{from} {y}H{to}m6 -5l-6 5l6 5\" fill=\"none\" stroke=\"#555555\" stroke-width=\"2\"/>\n"
            );
        }
    }
    svg + &format!(
        "<text x=\"{left}\" y=\"176\" font-size=\"12\" fill=\"#555555\">First come, first served: when 1 ends, 2 is \
         woken by a message. Nobody polls.</text>\n</svg>\n"
    )
}

/// A drawing without the numbers in its texts.
fn without_numbers(svg: &str) -> String {
    let texts = svg.split('>').map(|part| match part.split_once('<') {
        Some((text, tag)) => {
            let text: String = text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect();
            format!("{text}<{tag}")
        }
        None => part.into(),
    });
    texts.collect::<Vec<_>>().join(">")
}

#[test]
fn the_picture_is_of_a_real_run() {
    let place = Place::new();
    let _billing = place.hold(&["--holder", "billing", "orders/42"]);
    let mut waiting = Vec::new();
    for (ahead, holder) in ["refunds", "report"].into_iter().enumerate() {
        waiting.push(place.start_waiting(&["run", "--holder", holder, "orders/42", "--", "true"]));
        place.until_claims("orders/42", ahead + 2);
    }
    let drawn = draw(&place.show("orders/42"));
    let path = "docs/queue.svg";
    if is_to_be_renewed() {
        std::fs::write(root().join(path), &drawn).unwrap();
    }
    assert_eq!(
        without_numbers(&read(path)),
        without_numbers(&drawn),
        "set LOCKKEEPER_RENEW=1 to renew {path}"
    );
}
