//! The report is a well-formed page with its pictures inside, whatever came out.

use lockkeeper_bench::command::Outcome;
use lockkeeper_bench::machine::Machine;
use lockkeeper_bench::report;
use lockkeeper_bench::scale::Scale;
use lockkeeper_bench::summary::{Figure, Subject, Summary, Unit};

fn figure(name: &str, unit: Unit, median: f64) -> Figure {
    Figure { name: name.into(), unit, median, low: median * 0.9, high: median * 1.1 }
}

fn summary(workload: &str, engine: &str, size: usize, figures: Vec<Figure>) -> Summary {
    Summary {
        workload: workload.into(),
        size: if size == 1 { String::new() } else { format!("{size} keepers") },
        size_number: size,
        subject: Subject { name: format!("{engine} queue"), engine: engine.into(), is_floor: false },
        runs: 3,
        figures,
        curve: vec![(0.0, 1e-6), (0.5, 2e-6), (0.9, 5e-6), (0.99, 9e-5), (0.999, 1e-3)],
        note: None,
    }
}

fn outcome(results: Vec<Summary>) -> Outcome {
    Outcome {
        version: "0.0.0".into(),
        machine: Machine::here(),
        scale: Scale::tiny(),
        seconds: 1.0,
        results,
        peers: Vec::new(),
        delayed: Vec::new(),
    }
}

fn everything() -> Outcome {
    let mut results = Vec::new();
    for (engine, rate) in [("file", 90_000.0), ("redis", 9_000.0)] {
        results.push(summary("uncontended", engine, 1, vec![figure("pairs/s", Unit::PerSecond, rate)]));
    }
    let mut floor = summary("uncontended", "redis", 1, vec![figure("pairs/s", Unit::PerSecond, 10_000.0)]);
    floor.subject = Subject { name: "raw <SET> & delete".into(), engine: "redis".into(), is_floor: true };
    results.insert(1, floor);
    for size in [2, 16] {
        results.push(summary(
            "contended",
            "file",
            size,
            vec![figure("hand-overs/s", Unit::PerSecond, 5_000.0)],
        ));
    }
    let figures =
        vec![figure("hand-over p50", Unit::Seconds, 0.003), figure("hand-over p100", Unit::Seconds, 0.02)];
    results.push(summary("crash", "file", 1, figures));
    let mut failed = summary("crash", "redis", 1, Vec::new());
    failed.note = Some("could not <connect> & \u{1b}[31mgave up".into());
    failed.curve.clear();
    results.push(failed);
    outcome(results)
}

fn parse(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

#[test]
fn the_page_is_well_formed_and_has_a_table_per_workload_and_every_plot() {
    let page = report::render(&everything()).unwrap();
    let document = parse(&page);
    let count = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).count();
    assert_eq!(count("table"), 3);
    let pictures: Vec<_> =
        document.descendants().filter(|node| node.is_element() && node.tag_name().name() == "svg").collect();
    assert_eq!(pictures.len(), 4, "throughput, latency, hand-over, crash");
    for picture in pictures {
        assert!(picture.attribute("aria-label").is_some());
        let words: String = picture.descendants().filter_map(|node| node.text()).collect();
        assert!(words.contains("file queue"), "{words}");
    }
}

/// The words of the picture with this label.
fn words(page: &str, label: &str) -> String {
    let document = parse(page);
    let picture =
        document.descendants().find(|node| node.attribute("aria-label") == Some(label)).expect(label);
    picture.descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_picture_has_its_title_with_the_unit_and_its_caption_inside() {
    let page = report::render(&everything()).unwrap();
    let throughput = words(&page, "Locks and releases per second");
    assert!(throughput.contains("Locks and releases per second (pairs/s)"), "{throughput}");
    assert!(throughput.contains("Longer is better"), "{throughput}");
    let crash = words(&page, "How long until the next one holds after the holder was killed");
    assert!(crash.contains("the table says which TTL"), "{crash}");
}

#[test]
fn the_picture_of_hand_overs_has_fair_styles_only() {
    let mut outcome = everything();
    let mut row = summary("contended", "sqlite", 2, vec![figure("hand-overs/s", Unit::PerSecond, 100.0)]);
    row.subject.name = "sqlite row".into();
    outcome.results.push(row);
    let page = report::render(&outcome).unwrap();
    let handover = words(&page, "How long a fair hand-over takes while others wait");
    assert!(handover.contains("file queue") && !handover.contains("sqlite row"), "{handover}");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = report::render(&everything()).unwrap();
    for word in ["<script", "<link", " src=", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("http"), "a link to elsewhere");
}

#[test]
fn figures_notes_and_floors_are_on_the_page() {
    let page = report::render(&everything()).unwrap();
    for text in ["90.0 k", "raw &lt;SET&gt; &amp; delete", "could not &lt;connect&gt; &amp;  [31mgave up"] {
        assert!(page.contains(text), "{text} is missing in\n{page}");
    }
}

#[test]
fn a_bench_without_figures_still_has_a_page() {
    let mut nothing = summary("uncontended", "etcd", 1, Vec::new());
    nothing.note = Some("its server did not start".into());
    nothing.curve.clear();
    for results in [Vec::new(), vec![nothing]] {
        let page = report::render(&outcome(results)).unwrap();
        assert!(!page.contains("<svg"));
        parse(&page);
    }
}

/// Where Chromium is installed, it must show the page.
#[test]
fn a_browser_shows_the_page() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(name).is_file())
    }) else {
        eprintln!("not checked: no Chromium is installed");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let page = report::write(&everything(), directory.path()).unwrap();
    let picture = directory.path().join("page.png");
    let run = |wish: String| {
        let output = std::process::Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg("--window-size=1000,2400")
            .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
            .arg(wish)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(format!("--screenshot={}", picture.display()));
    let png = std::fs::read(picture).unwrap();
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((&png[1..4], number(16), number(20)), (&b"PNG"[..], 1000, 2400));
    assert!(png.len() > 30_000, "a picture with something on it: {} bytes", png.len());
    let shown = run("--dump-dom".into());
    assert_eq!(shown.matches("<svg").count(), 4, "the plots are in what the browser made of the page");
}
