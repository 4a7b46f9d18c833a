//! The benchmark suite: families of problems that people multiply, or that kernels find hard.
//! `suite.toml` of this crate lists them, and is compiled in.

use std::fmt;

use pgemm_ir::Element;
use pgemm_plan::{Major, Problem};
use serde::Deserialize;

use crate::error::{BenchError, FamilyError};

/// `suite.toml`, or a file like it: families in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    families: Vec<Family>,
}

/// Problems that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name, which is the header in the file.
    pub name: String,
    /// The shapes of its problems.
    pub shapes: Shapes,
    /// The element types of A and B that it is measured in; `None` for all.
    pub dtypes: Option<Vec<Element>>,
    /// Majors of A and B. Each problem is measured with each.
    pub majors: Vec<(Major, Major)>,
}

/// The extents of a family's problems.
#[derive(Clone, Debug, PartialEq)]
pub enum Shapes {
    /// Single products: M, N, K.
    Single(Vec<[usize; 3]>),
    /// Groups, rows of each group, N, K.
    Grouped(Vec<[usize; 4]>),
    /// Batch, M, N, K.
    Batched(Vec<[usize; 4]>),
    /// Independent products in a row.
    Stream {
        /// M, N, K of each.
        problems: Vec<[usize; 3]>,
        /// Number of jobs that run in a row.
        count: usize,
    },
    /// Odd extents, with rows that are longer than their contents.
    Unaligned {
        /// M, N, K.
        problems: Vec<[usize; 3]>,
        /// Elements between the end of a row and the next. Each problem is measured with each.
        row_padding: Vec<usize>,
    },
}

/// Why a family, or one of its problems, is not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMeasured {
    /// The library has no such operation yet; its name.
    Operation(&'static str),
    /// The family's problems are measured many in a row ([`Family::stream`]).
    InARow,
    /// The family is defined for other element types.
    Dtype(Vec<Element>),
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotMeasured::Operation(name) => write!(f, "not yet: the library has no {name}"),
            NotMeasured::InARow => {
                f.write_str("its problems are for many in a row: see `pgemm bench --stream`")
            }
            NotMeasured::Dtype(defined) => {
                let names: Vec<&str> = defined.iter().map(|dtype| dtype.name()).collect();
                write!(f, "the family is defined for {}", names.join(", "))
            }
        }
    }
}

impl Suite {
    /// The project's own.
    ///
    /// # Errors
    /// [`BenchError::SuiteSyntax`] or [`BenchError::SuiteFamily`] if this version was built with a
    /// broken file.
    pub fn standard() -> Result<Suite, BenchError> {
        Suite::parse(include_str!("../suite.toml"))
    }

    /// Reads a suite from TOML.
    ///
    /// # Errors
    /// [`BenchError::SuiteSyntax`], or [`BenchError::SuiteFamily`] with the family and what is
    /// wrong with it.
    pub fn parse(text: &str) -> Result<Suite, BenchError> {
        let table: toml::Table = toml::from_str(text)
            .map_err(|error| BenchError::SuiteSyntax { finding: Box::new(error) })?;
        let families = table.into_iter().map(|(name, value)| {
            let family = value.try_into().map_err(FamilyError::from);
            family.and_then(|file: FileFamily| file.family(&name)).map_err(|finding| {
                BenchError::SuiteFamily { family: name, finding: Box::new(finding) }
            })
        });
        Ok(Suite { families: families.collect::<Result<_, _>>()? })
    }

    /// All families.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// The family that has this problem in this type.
    pub fn family_of(&self, problem: &Problem, dtype: Element) -> Option<&Family> {
        self.families.iter().find(|family| {
            let singly = || family.problems(dtype).unwrap_or_default();
            let in_a_row = || family.stream(dtype).ok().flatten().map_or_else(Vec::new, |of| of.0);
            singly().contains(problem) || in_a_row().contains(problem)
        })
    }

    /// The families of these names, in the requested order and without duplicates. All families if
    /// no name is given.
    ///
    /// # Errors
    /// [`BenchError::NoSuchFamily`], which lists the existing ones.
    pub fn select<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<&Family>, BenchError> {
        if names.is_empty() {
            return Ok(self.families.iter().collect());
        }
        let mut selected: Vec<&Family> = Vec::new();
        for name in names {
            let requested = name.as_ref();
            let Some(family) = self.families.iter().find(|family| family.name == requested) else {
                let families = self.families.iter().map(|family| family.name.clone()).collect();
                return Err(BenchError::NoSuchFamily { requested: requested.to_owned(), families });
            };
            if !selected.iter().any(|other| other.name == requested) {
                selected.push(family);
            }
        }
        Ok(selected)
    }
}

impl Family {
    /// The number of its problems for one element type.
    pub fn count(&self) -> usize {
        let shapes = match &self.shapes {
            Shapes::Single(problems) | Shapes::Stream { problems, .. } => problems.len(),
            Shapes::Grouped(problems) | Shapes::Batched(problems) => problems.len(),
            Shapes::Unaligned { problems, row_padding } => problems.len() * row_padding.len(),
        };
        shapes * self.majors.len()
    }

    /// The problems for A and B of type `dtype`, or why they cannot be measured.
    ///
    /// # Errors
    /// The reason.
    pub fn problems(&self, dtype: Element) -> Result<Vec<Problem>, NotMeasured> {
        self.check_dtype(dtype)?;
        // Products, elements behind each line, and extents.
        let shapes: Vec<(usize, usize, [usize; 3])> = match &self.shapes {
            Shapes::Single(shapes) => shapes.iter().map(|&extents| (1, 0, extents)).collect(),
            Shapes::Batched(shapes) => {
                shapes.iter().map(|&[batch, m, n, k]| (batch, 0, [m, n, k])).collect()
            }
            Shapes::Unaligned { problems, row_padding } => row_padding
                .iter()
                .flat_map(|&padding| problems.iter().map(move |&extents| (1, padding, extents)))
                .collect(),
            Shapes::Grouped(_) => return Err(NotMeasured::Operation("grouped GEMM")),
            Shapes::Stream { .. } => return Err(NotMeasured::InARow),
        };
        let problems = shapes.into_iter().flat_map(|(batch, padding, [m, n, k])| {
            self.majors
                .iter()
                .map(move |&(a, b)| padded(Problem::new(m, n, k, a, b), padding).with_batch(batch))
        });
        Ok(problems.collect())
    }

    /// The problems for A and B of type `dtype` and the number of jobs of each, if this is a family
    /// of streams.
    ///
    /// # Errors
    /// Why they cannot be measured.
    pub fn stream(&self, dtype: Element) -> Result<Option<(Vec<Problem>, usize)>, NotMeasured> {
        let Shapes::Stream { problems, count } = &self.shapes else { return Ok(None) };
        self.check_dtype(dtype)?;
        let problems = problems.iter().flat_map(|&[m, n, k]| {
            self.majors.iter().map(move |&(a, b)| Problem::new(m, n, k, a, b))
        });
        Ok(Some((problems.collect(), *count)))
    }

    fn check_dtype(&self, dtype: Element) -> Result<(), NotMeasured> {
        match self.dtypes.as_ref().filter(|dtypes| !dtypes.contains(&dtype)) {
            Some(dtypes) => Err(NotMeasured::Dtype(dtypes.clone())),
            None => Ok(()),
        }
    }
}

/// The problem with `elements` additional elements after each line of all matrices.
fn padded(problem: Problem, elements: usize) -> Problem {
    problem
        .with_a_leading_dimension(problem.a.leading_dimension + elements)
        .with_b_leading_dimension(problem.b.leading_dimension + elements)
        .with_c_leading_dimension(problem.c_leading_dimension + elements)
        .with_d_leading_dimension(problem.d_leading_dimension + elements)
}

/// A family as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFamily {
    #[serde(default)]
    kind: Kind,
    problems: Option<Vec<Vec<usize>>>,
    sizes: Option<Vec<usize>>,
    m: Option<Vec<usize>>,
    nk: Option<Vec<[usize; 2]>>,
    dtypes: Option<Vec<String>>,
    majors: Option<Vec<String>>,
    lda_extra: Option<Vec<usize>>,
    count: Option<usize>,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Single,
    Grouped,
    Batched,
    Stream,
}

impl FileFamily {
    fn family(self, name: &str) -> Result<Family, FamilyError> {
        let dtypes = self.dtypes.map(|names| {
            let dtypes = names.iter().map(|name| name.parse::<Element>());
            dtypes.collect::<Result<Vec<_>, _>>()
        });
        let majors = match self.majors {
            // The majors of linear layers.
            None => vec![(Major::K, Major::K)],
            Some(names) => names.iter().map(|name| majors(name)).collect::<Result<_, _>>()?,
        };
        let extents = match (self.problems, self.sizes, self.m, self.nk) {
            (Some(problems), None, None, None) => problems,
            (None, Some(sizes), None, None) => sizes.iter().map(|&size| vec![size; 3]).collect(),
            (None, None, Some(m), Some(nk)) => {
                m.iter().flat_map(|&m| nk.iter().map(move |&[n, k]| vec![m, n, k])).collect()
            }
            _ => {
                return Err(FamilyError::Extents);
            }
        };
        let shapes = match (self.kind, self.lda_extra, self.count) {
            (Kind::Single, None, None) => Shapes::Single(arrays(extents)?),
            (Kind::Single, Some(row_padding), None) => {
                Shapes::Unaligned { problems: arrays(extents)?, row_padding }
            }
            (Kind::Grouped, None, None) => Shapes::Grouped(arrays(extents)?),
            (Kind::Batched, None, None) => Shapes::Batched(arrays(extents)?),
            (Kind::Stream, None, Some(count)) => {
                Shapes::Stream { problems: arrays(extents)?, count }
            }
            _ => return Err(FamilyError::OtherKind),
        };
        Ok(Family { name: name.to_owned(), shapes, dtypes: dtypes.transpose()?, majors })
    }
}

fn arrays<const N: usize>(extents: Vec<Vec<usize>>) -> Result<Vec<[usize; N]>, FamilyError> {
    let array = |extents: Vec<usize>| {
        let extents: [usize; N] = extents
            .try_into()
            .map_err(|extents| FamilyError::ExtentCount { extents, needed: N })?;
        match extents.contains(&0) {
            true => Err(FamilyError::Empty { extents: extents.to_vec() }),
            false => Ok(extents),
        }
    };
    extents.into_iter().map(array).collect()
}

/// `kn`: the contiguous dimension of A, then that of B.
fn majors(name: &str) -> Result<(Major, Major), FamilyError> {
    match name {
        "kk" => Ok((Major::K, Major::K)),
        "kn" => Ok((Major::K, Major::N)),
        "mk" => Ok((Major::M, Major::K)),
        "mn" => Ok((Major::M, Major::N)),
        _ => Err(FamilyError::Majors { text: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projects_suite_has_its_problems() {
        let suite = Suite::standard().unwrap();
        let counts: Vec<(&str, usize)> =
            suite.families().iter().map(|family| (family.name.as_str(), family.count())).collect();
        assert_eq!(
            counts,
            [
                ("square", 22),
                ("headline", 4),
                ("llama3_8b", 60),
                ("llama3_70b", 48),
                ("deepseek_v3", 32),
                ("grouped", 5),
                ("batched", 5),
                ("waves", 6),
                ("large_k", 4),
                ("skinny", 7),
                ("unaligned", 21),
                ("stream", 5),
            ]
        );
        let problems =
            |dtype| suite.families().iter().filter_map(move |family| family.problems(dtype).ok());
        assert_eq!(problems(Element::Bf16).flatten().count(), 209);
        // The families of language models are not defined for this type.
        assert_eq!(problems(Element::F16).flatten().count(), 209 - 60 - 48 - 32);
    }

    #[test]
    fn problems_have_the_files_extents_and_majors() {
        let suite = Suite::standard().unwrap();
        let problems = |name| suite.select(&[name]).unwrap()[0].problems(Element::Bf16).unwrap();
        assert_eq!(problems("square")[3], Problem::new(512, 512, 512, Major::K, Major::N));
        assert_eq!(problems("headline")[0], Problem::new(16384, 16384, 4096, Major::K, Major::N));
        let linear = problems("llama3_8b");
        assert_eq!(linear[8], Problem::new(8, 4096, 14336, Major::K, Major::K));
        assert!(linear.iter().all(|problem| problem.b.major == Major::K));
        let small = Problem::new(128, 128, 128, Major::K, Major::K).with_batch(64);
        assert_eq!(problems("batched")[3], small);
        let odd = problems("unaligned");
        assert_eq!(odd[0], Problem::new(4095, 4095, 4095, Major::K, Major::K));
        // The second of three paddings, of every matrix.
        let padded = odd[7 + 6];
        assert_eq!([padded.a, padded.b].map(|operand| operand.leading_dimension), [1024; 2]);
        assert_eq!([padded.c_leading_dimension, padded.d_leading_dimension], [514; 2]);
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        let suite = Suite::standard().unwrap();
        let why = |name: &str, dtype| {
            suite.select(&[name]).unwrap()[0].problems(dtype).unwrap_err().to_string()
        };
        assert_eq!(why("grouped", Element::Bf16), "not yet: the library has no grouped GEMM");
        assert!(why("stream", Element::Bf16).contains("many in a row"));
        assert_eq!(why("llama3_8b", Element::F16), "the family is defined for bf16, e4m3");
    }

    #[test]
    fn streams_have_a_count() {
        let suite = Suite::standard().unwrap();
        let of = |name: &str| suite.select(&[name]).unwrap()[0].stream(Element::Bf16).unwrap();
        let (problems, count) = of("stream").unwrap();
        assert_eq!((problems.len(), count), (5, 1000));
        assert_eq!(problems[3], Problem::new(1024, 1024, 1024, Major::K, Major::K));
        assert_eq!(of("square"), None);
    }

    #[test]
    fn families_are_selected_by_name() {
        let suite = Suite::standard().unwrap();
        assert_eq!(suite.select::<&str>(&[]).unwrap().len(), 12);
        let selected = suite.select(&["waves", "square", "waves"]).unwrap();
        let names: Vec<&str> = selected.iter().map(|family| family.name.as_str()).collect();
        assert_eq!(names, ["waves", "square"]);
        let message = suite.select(&["waves", "llama"]).unwrap_err().to_string();
        assert!(message.contains("'llama'"), "{message}");
        assert!(message.contains("square, headline, llama3_8b"), "{message}");
    }

    #[test]
    fn broken_files_are_refused_with_the_family() {
        let finding = |text: &str| Suite::parse(text).unwrap_err().to_string();
        assert!(finding("[a").contains("line 1"));
        for (text, part) in [
            ("[a]\nsizes = [8]\nproblems = [[8, 8, 8]]", "one of `problems`"),
            ("[a]\nm = [8]", "one of `problems`"),
            ("[a]\nproblems = [[8, 8]]", "[8, 8] should have 3 extents"),
            ("[a]\nkind = \"batched\"\nproblems = [[8, 8, 8]]", "should have 4 extents"),
            ("[a]\nsizes = [0]", "extent of 0"),
            ("[a]\nsizes = [-8]", "-8"),
            ("[a]\nsizes = [8]\nmajors = [\"nn\"]", "'nn' is no pair of majors"),
            ("[a]\nsizes = [8]\ndtypes = [\"bf15\"]", "bf15"),
            ("[a]\nsizes = [8]\ncount = 7", "`count` to streams"),
            ("[a]\nkind = \"stream\"\nsizes = [8]", "`count` to streams"),
            ("[a]\nsize = [8]", "unknown field `size`"),
            ("a = 7", "expected"),
        ] {
            let message = finding(text);
            assert!(message.starts_with("family 'a'") && message.contains(part), "{message}");
        }
    }
}
