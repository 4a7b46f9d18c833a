//! [`Worker`]: a child process that answers a line of JSON with a line of JSON. Every wait for it
//! has a limit.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Why a worker did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no such program, or the system starts no more processes.
    #[error("{program} cannot be started: {source}")]
    NotStarted {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },

    /// The process ended before it answered.
    #[error("{program} ended{}{}", with(status), after(last_words))]
    Ended {
        /// The program.
        program: String,
        /// Its exit status, if the system says it.
        status: Option<ExitStatus>,
        /// The last line that it wrote to its standard error.
        last_words: Option<String>,
    },

    /// The process did not answer in time, and was ended.
    #[error("{program} did not answer within {:.1} s and was ended", limit.as_secs_f64())]
    Silent {
        /// The program.
        program: String,
        /// How long it was waited for.
        limit: Duration,
    },

    /// The answer has another form than was expected.
    #[error("{program} answered '{line}', which cannot be read: {source}")]
    Garbled {
        /// The program.
        program: String,
        /// The beginning of the answer.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },

    /// The worker says that it does not do such a thing.
    #[error("{0}")]
    Refused(String),

    /// The worker says that it tried and failed.
    #[error("{0}")]
    Failed(String),
}

fn with(status: &Option<ExitStatus>) -> String {
    status.map_or_else(String::new, |status| format!(" with {status}"))
}

fn after(last_words: &Option<String>) -> String {
    last_words.as_ref().map_or_else(String::new, |line| format!(" after it wrote '{line}'"))
}

/// Longest line of an answer. Longer ones are cut, and then cannot be read.
const LONGEST_LINE: u64 = 256 << 20;

/// Longest line of complaints that is kept, and characters of an answer in an error.
const SHORT_LINE: usize = 500;

/// How long an ending process may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process and the pipes to it. Threads write and read them, so that a process that neither reads
/// nor writes is noticed. It is ended when this value is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    program: String,
    child: Child,
    requests: Sender<Vec<u8>>,
    answers: Receiver<String>,
    last_words: Arc<Mutex<Option<String>>>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<A> {
    Ok(A),
    Refused(String),
    Failed(String),
}

impl Worker {
    /// Starts a process.
    ///
    /// # Errors
    /// [`WorkerError::NotStarted`].
    pub(crate) fn start(mut command: Command) -> Result<Worker, WorkerError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let not_started = |source| WorkerError::NotStarted { program: program.clone(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(not_started)?;
        let (requests, to_write) = mpsc::channel::<Vec<u8>>();
        let (from_child, answers) = mpsc::channel();
        let last_words = Arc::new(Mutex::new(None));
        let thread = || thread::Builder::new();
        if let Some(mut stdin) = child.stdin.take() {
            let write = move || {
                // It ends when the process no longer reads, or when there are no more requests.
                to_write
                    .iter()
                    .try_for_each(|bytes| stdin.write_all(&bytes).and_then(|()| stdin.flush()))
            };
            thread().spawn(write).map_err(not_started)?;
        }
        if let Some(stdout) = child.stdout.take() {
            let read = move || {
                each_line(BufReader::new(stdout), LONGEST_LINE, |line| {
                    from_child.send(line).is_ok()
                });
            };
            thread().spawn(read).map_err(not_started)?;
        }
        let listen = |stderr| {
            let last_words = Arc::clone(&last_words);
            thread().spawn(move || {
                each_line(BufReader::new(stderr), SHORT_LINE as u64, |line| {
                    *last_words.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
                    true
                });
            })
        };
        let listener = child.stderr.take().map(listen).transpose().map_err(not_started)?;
        Ok(Worker { program, child, requests, answers, last_words, listener })
    }

    /// Sends a line, and behind it these bytes, and waits for the answer.
    ///
    /// # Errors
    /// [`WorkerError::Refused`] and [`WorkerError::Failed`] if the worker says so. After any other
    /// error the process is over.
    pub(crate) fn ask<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        data: &[&[u8]],
        limit: Duration,
    ) -> Result<A, WorkerError> {
        let mut bytes = match serde_json::to_vec(request) {
            Ok(bytes) => bytes,
            Err(error) => return Err(WorkerError::Failed(error.to_string())),
        };
        bytes.push(b'\n');
        for part in data {
            bytes.extend_from_slice(part);
        }
        if self.requests.send(bytes).is_err() {
            return Err(self.ended());
        }
        let line = match self.answers.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                return Err(WorkerError::Silent { program: self.program.clone(), limit });
            }
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Ok(answer)) => Ok(answer),
            Ok(Answer::Refused(why)) => Err(WorkerError::Refused(why)),
            Ok(Answer::Failed(why)) => Err(WorkerError::Failed(why)),
            Err(source) => {
                self.end();
                let program = self.program.clone();
                let line = line.chars().take(SHORT_LINE).collect();
                Err(WorkerError::Garbled { program, line, source })
            }
        }
    }

    /// Whether the process is over.
    pub(crate) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn ended(&mut self) -> WorkerError {
        let status = self.wait();
        if status.is_none() {
            self.end();
        }
        let heard_all = || self.listener.as_ref().is_none_or(JoinHandle::is_finished);
        within(PATIENCE, || heard_all().then_some(()));
        let last_words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        WorkerError::Ended { program: self.program.clone(), status, last_words }
    }

    /// Ends the process.
    fn end(&mut self) {
        // The process may be over already.
        let _over_already = self.child.kill();
        self.wait();
    }

    /// Waits for the end of the process, but not for long: one whose driver hangs may never end.
    fn wait(&mut self) -> Option<ExitStatus> {
        within(PATIENCE, || self.child.try_wait().transpose()).and_then(Result::ok)
    }
}

/// What `look` finds, as soon as it finds something within this time.
fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = look();
        if found.is_some() || begin.elapsed() >= limit {
            return found;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Calls `each` with the lines of a pipe until it returns false, or the pipe ends. Lines that are
/// longer than `longest` bytes are cut in pieces, and empty ones are left out.
fn each_line(mut pipe: impl BufRead, longest: u64, mut each: impl FnMut(String) -> bool) {
    loop {
        let mut line = Vec::new();
        match pipe.by_ref().take(longest).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !line.is_empty() && !each(line) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Worker {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Worker::start(command).unwrap()
    }

    fn ask<A: DeserializeOwned>(worker: &mut Worker, limit: Duration) -> Result<A, WorkerError> {
        worker.ask(&serde_json::json!({ "do": "it" }), &[], limit)
    }

    #[test]
    fn each_request_has_its_answer() {
        let mut worker = shell(
            r#"read request; echo "{\"ok\":$request}"; read request; echo '{"refused":"not that"}'
               read request; echo '{"failed":"no memory"}'; read request"#,
        );
        let answer: serde_json::Value = ask(&mut worker, LONG).unwrap();
        assert_eq!(answer["do"], "it");
        let refused = ask::<u32>(&mut worker, LONG).unwrap_err();
        assert!(matches!(&refused, WorkerError::Refused(why) if why == "not that"), "{refused}");
        let failed = ask::<u32>(&mut worker, LONG).unwrap_err();
        assert!(matches!(&failed, WorkerError::Failed(why) if why == "no memory"), "{failed}");
        assert!(!worker.is_over());
    }

    #[test]
    fn bytes_follow_the_line() {
        let mut worker = shell(r#"read request; data=$(head -c 6); echo "{\"ok\":\"$data\"}""#);
        let answer: String = worker.ask(&1, &[b"abc", b"def"], LONG).unwrap();
        assert_eq!(answer, "abcdef");
    }

    #[test]
    fn a_process_that_ends_is_reported_with_its_last_words() {
        let mut worker = shell("read request; echo first >&2; echo no luck >&2; exit 3");
        let error = ask::<u32>(&mut worker, LONG).unwrap_err().to_string();
        assert!(error.contains("sh ended with exit status: 3 after it wrote 'no luck'"), "{error}");
        assert!(worker.is_over());
        // Neither does it answer later.
        assert!(matches!(ask::<u32>(&mut worker, LONG), Err(WorkerError::Ended { .. })));
    }

    #[test]
    fn a_process_that_hangs_or_does_not_read_is_ended() {
        for script in ["exec sleep 1000", "exec sleep 1000 1>&2"] {
            let mut worker = shell(script);
            let begin = Instant::now();
            let data = vec![0; 4 << 20];
            let error = worker.ask::<u32>(&1, &[&data], Duration::from_millis(100)).unwrap_err();
            assert!(
                matches!(error, WorkerError::Silent { .. } | WorkerError::Ended { .. }),
                "{error}"
            );
            assert!(worker.is_over() && begin.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn answers_that_are_none_end_the_process() {
        for line in ["hello", "{}", r#"{"ok":"a text"}"#, "\u{fffd}"] {
            let mut worker = shell(&format!("echo '{line}'; exec sleep 1000"));
            let error = ask::<u32>(&mut worker, LONG).unwrap_err();
            assert!(matches!(error, WorkerError::Garbled { .. }), "{error}");
            assert!(worker.is_over());
        }
    }

    #[test]
    fn a_program_that_there_is_not_is_named() {
        let error = Worker::start(Command::new("/nowhere/python3")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/python3 cannot be started"), "{error}");
    }
}
