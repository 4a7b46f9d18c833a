//! Enums whose values have names: in the text form, in messages, and for those who type them.

/// A set of values, each with a name of its own.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// Every value.
    const VALUES: &'static [Self];

    /// The name of a value.
    fn text(self) -> &'static str;

    /// The value of a name.
    fn of_text(text: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.text() == text)
    }
}

/// Names of values as a list for messages: `1, 2 or 4`.
pub(crate) fn alternatives<T: std::fmt::Display>(values: &[T]) -> String {
    let names: Vec<String> = values.iter().map(T::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "nothing".to_owned(),
    }
}

/// Declares an enum without fields together with the name of each variant.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $ty:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $ty {
            $($(#[$doc])* $variant,)*
        }

        impl $ty {
            /// Every value, in the order of the declaration.
            pub const ALL: [$ty; [$($name),*].len()] = [$($ty::$variant),*];

            /// The name in the text form.
            pub const fn name(self) -> &'static str {
                match self {
                    $($ty::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::named::Named for $ty {
            const VALUES: &'static [$ty] = &$ty::ALL;

            fn text(self) -> &'static str {
                self.name()
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
mod tests {
    use super::alternatives;

    #[test]
    fn alternatives_read_as_a_sentence() {
        assert_eq!(alternatives(&[1, 2, 4]), "1, 2 or 4");
        assert_eq!(alternatives(&["f32"]), "f32");
        assert_eq!(alternatives::<u32>(&[]), "nothing");
    }
}
