//! Reads the fenced blocks of the book's pages and of the README, so that tests can run them.
//!
//! The info string of a block has a language and, after commas, tags: `sh,gpu`. CONTRIBUTING.md
//! says what the languages and tags mean. A comment `<!-- set-up` before a block holds commands
//! that make its input files, and is not shown to readers.

use std::path::{Path, PathBuf};

/// A fenced block of a page, or a set-up comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The file name of the page, such as `c.md`.
    pub page: String,
    /// The line of the opening fence, from 1.
    pub line: usize,
    /// The first word of the info string, empty if there is none; `set-up` for a comment.
    pub language: String,
    /// The words of the info string after the language.
    pub tags: Vec<String>,
    /// The lines between the fences, without the indentation of the opening fence.
    pub text: String,
}

impl Block {
    /// Whether the block has a tag.
    pub fn is(&self, tag: &str) -> bool {
        self.tags.iter().any(|word| word == tag)
    }

    /// Where the block is, for messages: `docs/c.md:17`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// Whether the block is a Rust program, with a `main`, that builds and launches a kernel on a
    /// GPU too. Programs with the tag `emulator` are only for the emulator.
    pub fn runs_on_gpu(&self) -> bool {
        self.language == "rust" && self.text.contains("fn main()") && !self.is("emulator")
    }

    /// The text of a Rust block with the lines that rustdoc compiles and hides from readers: those
    /// that begin with `# `.
    pub fn program(&self) -> String {
        let line = |line: &str| match line.trim_start() {
            "#" => "\n".to_owned(),
            hidden if hidden.starts_with("# ") => format!("{}\n", &hidden[2..]),
            escaped if escaped.starts_with("##") => format!("{}\n", &escaped[1..]),
            _ => format!("{line}\n"),
        };
        self.text.lines().map(line).collect()
    }

    /// The commands of the block: one a line, with lines that end in a backslash joined, without
    /// comments and empty lines.
    pub fn commands(&self) -> Vec<String> {
        let joined = self.text.replace("\\\n", " ");
        let uncommented = joined.lines().map(|line| match comment(line) {
            Some(start) => &line[..start],
            None => line,
        });
        uncommented.map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

/// Where a comment of the shell begins in a line: at a `#` after a blank or at the start, outside
/// of quotes.
fn comment(line: &str) -> Option<usize> {
    let (mut quote, mut previous) = (None, ' ');
    for (position, letter) in line.char_indices() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            None if letter == '#' && previous.is_whitespace() => return Some(position),
            None => {}
        }
        previous = letter;
    }
    None
}

/// The words of a command, with quotes removed.
///
/// # Panics
/// If a quote is not closed.
pub fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut begun) = (vec![], String::new(), None, false);
    for letter in command.chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => word.push(letter),
            None if letter == '\'' || letter == '"' => (quote, begun) = (Some(letter), true),
            None if letter.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            None => {
                word.push(letter);
                begun = true;
            }
        }
    }
    assert!(quote.is_none(), "a quote is not closed: {command}");
    if begun {
        words.push(word);
    }
    words
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and all pages of the book, by their paths from the root, in alphabetical order. The
/// archive is not part of the book.
pub fn pages() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("docs")).expect("the folder docs can be read");
    let files = folder.map(|entry| entry.expect("the folder docs can be read").file_name());
    let names = files.filter_map(|name| name.into_string().ok());
    let mut pages: Vec<PathBuf> = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| Path::new("docs").join(name))
        .chain([PathBuf::from("README.md")])
        .collect();
    pages.sort();
    pages
}

/// The blocks of all pages.
pub fn all() -> Vec<Block> {
    let read = |page: &PathBuf| {
        let text = std::fs::read_to_string(root().join(page))
            .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        blocks(&page.display().to_string(), &text)
    };
    pages().iter().flat_map(read).collect()
}

/// The blocks of a page's text.
///
/// # Panics
/// If a block or a set-up comment does not end.
pub fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = vec![];
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let indentation = line.len() - line.trim_start().len();
        let (info, end) = if let Some(info) = line.trim_start().strip_prefix("```") {
            (info.trim(), "```")
        } else if line.trim() == "<!-- set-up" {
            ("set-up", "-->")
        } else {
            continue;
        };
        let mut body = String::new();
        loop {
            let Some((_, line)) = lines.next() else {
                panic!("{page}:{}: the block does not end", number + 1)
            };
            if line.trim() == end {
                break;
            }
            let cut = indentation.min(line.len() - line.trim_start().len());
            body += &line[cut..];
            body.push('\n');
        }
        let mut parts = info.split(',').map(|word| word.trim().to_owned());
        blocks.push(Block {
            page: page.to_owned(),
            line: number + 1,
            language: parts.next().unwrap_or_default(),
            tags: parts.collect(),
            text: body,
        });
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_a_language_tags_and_lines() {
        let page = "# Title\n<!-- set-up\na\n-->\n\n* item\n\n  ```sh,gpu\n  b # c\n    d \\\n  e\n  ```\n";
        let found = blocks("docs/x.md", page);
        let [setup, block] = &found[..] else { panic!("{found:?}") };
        assert_eq!((setup.language.as_str(), setup.text.as_str()), ("set-up", "a\n"));
        assert_eq!((block.language.as_str(), block.place().as_str()), ("sh", "docs/x.md:8"));
        assert!(block.is("gpu") && !block.is("sh"));
        assert_eq!(block.text, "b # c\n  d \\\ne\n");
        assert_eq!(block.commands(), ["b", "d  e"]);
    }

    #[test]
    fn words_are_those_of_a_shell() {
        let command = "run  --epilogue 'bias_n|silu' --title \"a 'b' c\" x='' ''";
        let expected = ["run", "--epilogue", "bias_n|silu", "--title", "a 'b' c", "x=", ""];
        assert_eq!(words(command), expected);
        let block = &blocks("p", "```\na '#1' #2\n```")[0];
        assert_eq!(block.commands(), ["a '#1'"]);
    }

    #[test]
    fn programs_have_their_hidden_lines() {
        let page = "```rust\n# use a;\n#[derive(B)]\nstruct C;\n#\n    # fn main() {}\n## d\n```\n\
                    ```rust,emulator\nfn main() {}\n```\n```rust\nfn part() {}\n```\n";
        let blocks = blocks("p", page);
        assert_eq!(blocks[0].program(), "use a;\n#[derive(B)]\nstruct C;\n\nfn main() {}\n# d\n");
        assert_eq!(blocks.iter().map(Block::runs_on_gpu).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    #[should_panic(expected = "p:1: the block does not end")]
    fn a_block_must_end() {
        blocks("p", "```sh\na");
    }

    /// Rust blocks are tested only if a crate includes the page in its documentation.
    #[test]
    fn pages_with_rust_are_doc_tests() {
        let sources: String = ["docs", "cute", "ir"]
            .map(|name| root().join("crates").join(name).join("src/lib.rs"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .concat();
        let mut count = 0;
        for block in all().iter().filter(|block| block.language == "rust") {
            let include = format!("include_str!(\"../../../{}\")", block.page);
            assert!(sources.contains(&include), "{}: no crate includes the page", block.place());
            let known = block.tags.iter().all(|tag| ["no_run", "emulator"].contains(&tag.as_str()));
            assert!(known, "{}: the block is not run: {:?}", block.place(), block.tags);
            count += 1;
        }
        assert!(count > 20, "only {count} Rust blocks were found");
    }
}
