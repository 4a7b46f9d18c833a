//! `pgemm report`, `pgemm compare`, `pgemm plot` and `pgemm roofline` without a GPU.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{fixture, line, pgemm};

fn stored(name: &str) -> String {
    format!("{}/../../benchmarks/results/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The browser: $PGEMM_CHROMIUM, or the first of the usual names on the path.
fn chromium() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PGEMM_CHROMIUM") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let places = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    places.into_iter().find(|place| place.is_file())
}

/// A page in a headless browser.
struct Browser {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Browser {
    /// `None` if there is none, which the test says. `PGEMM_REQUIRE_CHROMIUM=1` makes it fail.
    fn find() -> Option<Browser> {
        let Some(program) = chromium() else {
            let required = std::env::var_os("PGEMM_REQUIRE_CHROMIUM").is_some_and(|set| set == "1");
            assert!(!required, "PGEMM_REQUIRE_CHROMIUM is set, and there is no Chromium");
            // Past the test harness's capture. Where stderr is closed there is nobody to tell.
            let text = b"SKIPPED: there is no Chromium; PGEMM_CHROMIUM may name one\n";
            let _ = std::io::stderr().write_all(text);
            return None;
        };
        Some(Browser { program, folder: tempfile::tempdir().unwrap() })
    }

    fn run(&self, options: &[&str], page: &Path, hash: &str) -> Vec<u8> {
        let profile = format!("--user-data-dir={}", self.folder.path().join("profile").display());
        let output = Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--hide-scrollbars", &profile])
            .args(options)
            .arg(format!("file://{}{hash}", page.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The lines that a script prints at the end of the page.
    fn results(&self, page: &Path, hash: &str, script: &str) -> Vec<String> {
        let text = fs::read_to_string(page).unwrap();
        // The page allows inline scripts. Errors become a line.
        let script = format!(
            "<script>(() => {{ const lines = []; const print = line => lines.push(String(line));
            try {{ {script} }} catch (error) {{ print('error: ' + error); }}
            document.title = lines.join('\\u241e'); }})();</script></body>"
        );
        let page = self.folder.path().join("page.html");
        fs::write(&page, text.replacen("</body>", &script, 1)).unwrap();
        let dom = self.run(&["--dump-dom", "--window-size=360,800"], &page, hash);
        let dom = String::from_utf8(dom).unwrap();
        let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
        title.unwrap().0.split('\u{241e}').map(str::to_owned).collect()
    }
}

/// The page of problems of an atlas, of pairs and of streams.
fn page(folder: &Path) -> PathBuf {
    let page = folder.join("report.html");
    let files = ["atlas.jsonl", "atlas-peers.jsonl", "pairs.json", "stream.json"].map(fixture);
    let mut words: Vec<OsString> = vec!["report".into()];
    words.extend(files.map(OsString::from));
    words.extend(["-o".into(), page.clone().into(), "--title".into(), "A <b>title</b>".into()]);
    pgemm(words).fine();
    page
}

#[test]
fn a_page_shows_results_and_follows_its_filters() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    let script = "
        print(document.querySelector('h1').textContent);
        print(document.querySelector('h1 b') === null);
        print(document.querySelector('#count').textContent);
        for (const id of ['figures', 'groups', 'throughput', 'roofline', 'faults', 'streams'])
            print(id + ' ' + !document.getElementById(id).hidden);
        print(document.getElementById('errors') === null || document.getElementById('errors').hidden);
        print(document.documentElement.scrollWidth <= innerWidth);";
    let lines = browser.results(&page, "", script);
    // The title of a document is text, in which marks are escaped.
    assert_eq!(lines[..2], ["A &lt;b&gt;title&lt;/b&gt;", "true"].map(str::to_owned), "{lines:?}");
    assert!(lines[2].contains("problems"), "{lines:?}");
    for (line, section) in
        lines[3..9].iter().zip(["figures", "groups", "throughput", "roofline", "faults", "streams"])
    {
        assert_eq!(line, &format!("{section} true"), "{lines:?}");
    }
    // There are no errors of results, and nothing is wider than the window of a phone.
    assert_eq!(lines[9..], ["true", "true"].map(str::to_owned), "{lines:?}");

    let compared = "print(document.querySelector('[data-figure=compared]').dataset.value);
        print(document.querySelector('[data-figure=geometric-mean]').dataset.value);";
    let f16 = browser.results(&page, "#type=f16&peer=cuBLASLt", compared);
    assert_eq!(f16[0], "2", "{f16:?}");
    // The ratios are 1.0330 and 1.0085.
    assert!((f16[1].parse::<f64>().unwrap() - 1.0207).abs() < 1e-3, "{f16:?}");
}

/// Charts are one stop of the tab key, and arrows walk through their points and say what they are.
#[test]
fn charts_can_be_read_by_keyboard() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    let script = "
        const chart = document.querySelector('#throughput [tabindex=\"0\"]');
        chart.focus();
        const says = () => [...document.querySelectorAll('[aria-live]')]
            .map(place => place.textContent).join(' ');
        const press = key => chart.dispatchEvent(
            new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
        press('ArrowRight'); const first = says();
        press('ArrowRight'); const second = says();
        print(first.includes('TFLOP'));
        print(first !== second);";
    assert_eq!(browser.results(&page, "#type=bf16", script), ["true", "true"]);
}

#[test]
fn a_page_can_be_looked_at() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    for theme in ["light", "dark"] {
        let picture = folder.path().join(format!("{theme}.png"));
        let option = format!("--screenshot={}", picture.display());
        browser.run(&[&option, "--window-size=1440,1200"], &page, &format!("#theme={theme}"));
        let bytes = fs::metadata(&picture).unwrap().len();
        assert!(bytes > 40_000, "{theme}: {bytes} bytes");
    }
}

#[test]
fn runs_are_chosen_by_name_and_results_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let (page, file) = (page.display(), stored("suite.jsonl"));
    let run = line(&format!("report {file} --run 2026-11-28-h100-suite-9 -o {page}")).fine();
    assert!(run.stderr.contains("6 results of 1 runs"), "{}", run.stderr);
    let html = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("2026-11-28-h100-suite-9"), "{} bytes", html.len());
    line(&format!("report {file} --run none -o {page}")).refused(&["nothing to show", "--run"]);
    line(&format!("report {file} --run [ -o {page}")).refused(&["--run"]);
    line(&format!("report /dev/null -o {page}")).refused(&["/dev/null", "not a regular file"]);
    line(&format!("report {file} -o {}", folder.path().display())).refused(&["directory"]);
    let notes = fixture("README.md");
    line(&format!("report {} -o {page}", notes.display()))
        .refused(&["README.md", "no results to show"]);
}

#[test]
fn slower_results_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let old = fixture("pairs.json");
    let (text, old) = (fs::read_to_string(&old).unwrap(), old.display());
    let same = line(&format!("compare {old} {old}")).fine();
    assert!(same.stdout.contains("1.0000") && !same.stdout.contains("SLOWER"), "{}", same.stdout);

    let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
    for part in ["min", "median", "max"] {
        let ratio = &mut report["outcomes"][0]["contestants"][1]["ratio"][part];
        *ratio = (ratio.as_f64().unwrap() * 0.9).into();
    }
    let new = folder.path().join("new.json");
    fs::write(&new, report.to_string()).unwrap();
    let run = line(&format!("compare {old} {}", new.display()));
    assert_eq!(run.status, 1, "{}", run.stderr);
    let slower = run.stdout.lines().find(|row| row.contains("SLOWER")).unwrap();
    assert!(slower.contains("f16 kk 8192x8192x8192") && slower.contains("0.9000"), "{slower}");
    let tolerant = line(&format!("compare {old} {} --tolerance 0.15", new.display())).fine();
    assert!(!tolerant.stdout.contains("SLOWER"), "{}", tolerant.stdout);

    let other = fixture("atlas.jsonl");
    line(&format!("compare {old} {}", other.display())).refused(&["nothing to compare"]);
    line(&format!("compare {old} {old} --tolerance 2")).refused(&["0.02 for 2 %"]);
}

#[test]
fn problems_are_placed_under_nominal_ceilings() {
    let run = line("roofline --nominal --problem 16x8192x28672 --problem 8192 --dtype e4m3").fine();
    for part in ["nominal, of an H200", "bound by    memory", "bound by    arithmetic", "--tile"] {
        assert!(run.stdout.contains(part), "'{part}' is missing in:\n{}", run.stdout);
    }
    let blank = run.stdout.lines().filter(|line| line.is_empty()).count();
    assert_eq!(blank, 2, "a blank line before each problem:\n{}", run.stdout);
    line("roofline --nominal --problem 8x0x8").refused(&["8×0×8 has nothing to time"]);
    line("roofline --nominal").refused(&["--problem"]);
    let pairs = fixture("pairs.json");
    line(&format!("roofline --ceilings {} --problem 8", pairs.display()))
        .refused(&["the kind 'bench', and 'roofline' is needed"]);
}

/// The drawing in the README is what the command beside it draws from the stored results.
#[test]
fn the_readmes_drawing_is_that_of_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = folder.path().join("throughput.svg");
    let files = [stored("pairs.jsonl"), stored("types.jsonl")].join(" ");
    line(&format!("plot {files} --run 2026-11-29-squares-* -o {}", drawn.display())).fine();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/throughput.svg");
    let [drawn, committed] = [&drawn, &committed].map(|path| fs::read_to_string(path).unwrap());
    assert!(drawn == committed, "draw docs/images/throughput.svg again");
}
