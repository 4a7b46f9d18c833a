//! The files by which pkg-config and CMake find an installed library, in a form that works in any
//! folder: prefixes follow from where the files lie. They are made from the templates in `cmake/`
//! that CMakeLists.txt uses as well.

use std::fs;
use std::path::Path;

use crate::error::{AtPath, Error};
use crate::release::Release;

/// The files, by their paths below the prefix.
///
/// # Errors
/// A template or CMakeLists.txt cannot be read, or lacks what is taken from it.
pub fn files(root: &Path, release: &Release) -> Result<[(&'static str, String); 3], Error> {
    let list = root.join("CMakeLists.txt");
    let libraries = static_libraries(&fs::read_to_string(&list).at(&list)?)
        .ok_or(Error::Source { path: list, what: "set(static_libraries …)" })?;
    let template = |name: &str| {
        let path = root.join("cmake").join(name);
        fs::read_to_string(&path).at(&path)
    };
    let pkg_config = pkg_config(&template("persistent_gemm.pc.in")?, release, &libraries);
    let config = config(&template("persistent_gemmConfig.cmake.in")?, release, &libraries);
    Ok([
        ("lib/pkgconfig/persistent_gemm.pc", pkg_config),
        ("lib/cmake/persistent_gemm/persistent_gemmConfig.cmake", config),
        (
            "lib/cmake/persistent_gemm/persistent_gemmConfigVersion.cmake",
            config_version(&release.version),
        ),
    ])
}

/// The libraries that a program needs in addition to the static library.
fn static_libraries(list: &str) -> Option<Vec<String>> {
    let line = list.lines().find_map(|line| line.strip_prefix("set(static_libraries "))?;
    Some(line.strip_suffix(')')?.split_whitespace().map(str::to_owned).collect())
}

fn pkg_config(template: &str, release: &Release, libraries: &[String]) -> String {
    let libraries: Vec<String> = libraries.iter().map(|name| format!("-l{name}")).collect();
    substitute(
        template,
        &[
            ("@CMAKE_INSTALL_PREFIX@", "${pcfiledir}/../.."),
            ("@CMAKE_INSTALL_INCLUDEDIR@", "include"),
            ("@CMAKE_INSTALL_LIBDIR@", "lib"),
            ("@PROJECT_DESCRIPTION@", "Matrix multiplication for NVIDIA Hopper"),
            ("@PROJECT_VERSION@", &release.version),
            ("@private_libraries@", &libraries.join(" ")),
        ],
    )
}

/// CMake replaces `@PACKAGE_INIT@` by definitions that are not used outside of it. The template
/// needs two of them.
const PACKAGE_INIT: &str = r#"get_filename_component(persistent_gemm_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
macro(set_and_check name path)
  set(${name} "${path}")
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "the package persistent_gemm is incomplete: ${path} is missing; install it again")
  endif()
endmacro()
macro(check_required_components package)
  foreach(component ${${package}_FIND_COMPONENTS})
    if(${package}_FIND_REQUIRED_${component})
      set(${package}_FOUND FALSE)
      set(${package}_NOT_FOUND_MESSAGE "the package ${package} has no components, and ${component} was asked for")
    endif()
  endforeach()
endmacro()"#;

fn config(template: &str, release: &Release, libraries: &[String]) -> String {
    substitute(
        template,
        &[
            ("@PACKAGE_INIT@", PACKAGE_INIT),
            ("@PACKAGE_CMAKE_INSTALL_INCLUDEDIR@", "${persistent_gemm_prefix}/include"),
            ("@PACKAGE_CMAKE_INSTALL_LIBDIR@", "${persistent_gemm_prefix}/lib"),
            ("@PERSISTENT_GEMM_TUNER@", "ON"),
            ("@PROJECT_VERSION@", &release.version),
            ("@soversion@", &release.soversion()),
            ("@static_libraries@", &libraries.join(";")),
        ],
    )
}

/// Versions with the same major and minor number are compatible.
fn config_version(version: &str) -> String {
    format!(
        r#"# Tells find_package whether this version is compatible with the one that was asked for.
set(PACKAGE_VERSION "{version}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" own_minor "{version}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" requested_minor "${{PACKAGE_FIND_VERSION}}.0")
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION AND own_minor STREQUAL requested_minor)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
"#
    )
}

fn substitute(template: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::root;

    #[test]
    fn no_variable_of_a_template_is_left() {
        for (name, text) in files(&root(), &Release::example()).unwrap() {
            let words = text.split(|c: char| !(c.is_alphanumeric() || "@_".contains(c)));
            let left: Vec<&str> =
                words.filter(|word| word.len() > 2 && word.starts_with('@')).collect();
            assert_eq!(left, [""; 0], "{name}:\n{text}");
            assert!(text.contains("1.2.3"), "{name}:\n{text}");
            assert!(!text.contains(root().to_str().unwrap()), "{name}:\n{text}");
        }
    }

    #[test]
    fn static_libraries_are_those_of_cmake() {
        let list = "project(x)\nset(static_libraries m dl c)\n";
        assert_eq!(static_libraries(list).unwrap(), ["m", "dl", "c"]);
        assert_eq!(static_libraries("set(others m)\n"), None);
        let [(_, pkg_config), (_, config), _] = files(&root(), &Release::example()).unwrap();
        assert!(pkg_config.contains("-lpthread"), "{pkg_config}");
        assert!(config.contains(";pthread;"), "{config}");
    }
}
