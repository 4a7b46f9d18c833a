//! torch's side of the protocol, with a shell in place of Python. The program itself has tests in
//! `scripts/torch_peer_test.py`.

use std::path::Path;

use super::super::grid::tests::example;
use super::*;

/// Answers to `hello`, and to everything else as `rest` says.
fn program(rest: &str) -> String {
    let facts = r#"{"torch":"2.11.0","cuda":"13.0","cublaslt":{"major":13,"minor":1,"patch":2},"python":"3.12.3"}"#;
    format!("read hello; echo '{{\"ok\":{facts}}}'; {rest}")
}

fn start(program: String) -> Result<Torch> {
    let limit = Duration::from_secs(20);
    Torch::start(Launcher { interpreter: "sh".into(), program, device: "GPU-1".into(), limit })
}

fn bf16() -> Elements {
    Elements::new(Element::Bf16, Element::Bf16)
}

#[test]
fn versions_are_those_that_the_program_says() {
    let torch = start(program("read end")).unwrap();
    let version = "torch 2.11.0, CUDA 13.0, cuBLASLt 13.1.2, Python 3.12.3";
    assert_eq!((torch.version().as_str(), torch.name()), (version, TORCH));
    assert_eq!(torch.place(), "sh");
}

#[test]
fn without_torch_it_is_said_what_to_do() {
    for program in [
        r#"read hello; echo '{"refused":"Python 3.12 cannot import torch"}'"#,
        "echo No module named torch >&2; exit 1",
        "echo nonsense",
    ] {
        let error = start(program.to_owned()).unwrap_err();
        assert!(matches!(error, BenchError::NoTorch { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("torch") && text.contains("Set PGEMM_PYTHON"), "{text}");
    }
    let missing = Launcher {
        interpreter: "/nowhere/python3".into(),
        program: String::new(),
        device: String::new(),
        limit: LIMIT,
    };
    let error = Torch::start(missing).unwrap_err().to_string();
    assert!(error.contains("/nowhere/python3 cannot be started"), "{error}");
}

#[test]
fn a_product_is_taken_up_checked_and_timed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests");
    let (grid, problem, right) = example();
    let values: Vec<String> = right
        .iter()
        .map(|bytes| bytes.iter().map(|byte| format!("{byte:02X}")).collect())
        .collect();
    let checked = json!({ "ok": { "unwritten": 0, "products": values } });
    let torch = start(program(&format!(
        "next() {{ read line; echo \"$line\" >> {}; }}
         next; head -c 5 >> /dev/null; echo '{{\"ok\":{{}}}}'
         next; echo '{{\"ok\":{{\"operation\":\"torch.matmul\"}}}}'
         next; echo '{checked}'
         next; echo '{{\"ok\":{{}}}}'
         next; echo '{{\"ok\":{{\"seconds\":0.25}}}}'
         next; echo '{{\"ok\":{{\"seconds\":0}}}}'
         read end",
        log.display()
    )))
    .unwrap();
    torch.prepare(bf16(), [b"abc", b"de"], [10, 20, 30]).unwrap();
    // The same data again are not sent again.
    torch.prepare(bf16(), [b"abc", b"de"], [10, 20, 30]).unwrap();
    let sets = Sets { a: 1024, b: 2048, d: 4096, count: 7 };
    assert_eq!(torch.take_up(&problem, bf16(), &sets).unwrap(), "torch.matmul");
    let mut product = Product { torch: &torch };
    let sample = product.sample(&grid).unwrap();
    assert_eq!((sample.unwritten, &sample.products), (0, &right));
    assert_eq!(grid.finding(&sample).unwrap(), None);
    product.use_graph(14).unwrap();
    assert_eq!(product.slice(28).unwrap(), 0.25);
    let error = product.slice(28).unwrap_err().to_string();
    assert!(error.contains("28 products took 0 s"), "{error}");

    let requests: Vec<Value> = requests(&log);
    assert_eq!(requests[0], json!({ "do": "pool", "a": [3, 10], "b": [2, 20], "d": 30 }));
    let [m, n, k] = [problem.m, problem.n, problem.k];
    assert_eq!(
        requests[1],
        json!({
            "do": "prepare",
            "a": { "type": "bf16", "rows": m, "columns": k, "transposed": false, "set_bytes": 1024 },
            "b": { "type": "bf16", "rows": k, "columns": n, "transposed": true, "set_bytes": 2048 },
            "d": { "type": "bf16", "rows": m, "columns": n, "transposed": false, "set_bytes": 4096 },
            "batch": 3,
            "precision": "full",
            "sets": 7,
        })
    );
    assert_eq!(requests[2]["products"], json!([0, 2]));
    assert_eq!(requests[3], json!({ "do": "graph", "gemms": 14 }));
    assert_eq!(requests[4], json!({ "do": "slice", "gemms": 28 }));
}

fn requests(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn refusals_and_damaged_answers_are_told_apart() {
    let (grid, ..) = example();
    let answers = |answer: &str| {
        let torch = start(program(&format!("read check; echo '{answer}'; read end"))).unwrap();
        Product { torch: &torch }.sample(&grid).map(drop).unwrap_err()
    };
    assert!(answers(r#"{"refused":"no such layout"}"#).is_refusal());
    for answer in [
        r#"{"failed":"out of memory"}"#,
        r#"{"ok":{"unwritten":0,"products":["0"]}}"#,
        r#"{"ok":{"unwritten":0,"products":["0g"]}}"#,
        r#"{"ok":{"unwritten":0,"products":["é"]}}"#,
        r#"{"ok":{"unwritten":-1,"products":[]}}"#,
    ] {
        assert!(!answers(answer).is_refusal(), "{answer}");
    }
}

#[test]
fn a_program_that_ends_is_started_again_a_few_times() {
    let torch = start(program("read pool; echo '{\"ok\":{}}'; exit 1")).unwrap();
    for _ in 0..STARTS {
        torch.prepare(bf16(), [b"", b""], [0; 3]).unwrap();
        let error = torch.take_up(&example().1, bf16(), &Sets { a: 1, b: 1, d: 1, count: 2 });
        assert!(matches!(error, Err(WorkerError::Ended { .. })), "{error:?}");
    }
    let error = torch.prepare(bf16(), [b"", b""], [0; 3]).unwrap_err().to_string();
    assert!(error.contains("ended 4 times and is not started again"), "{error}");
}
