//! Finds all of many texts that a path begins with: one binary search, and a walk along the texts that begin
//! each other.

/// Literal beginnings of paths, each with the routes that have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// Sorted by text.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    text: String,
    routes: Vec<u32>,
    /// The longest other text that begins this one.
    parent: Option<u32>,
}

impl Prefixes {
    /// Of pairs of a text and a route.
    pub(crate) fn new(mut pairs: Vec<(String, u32)>) -> Self {
        pairs.sort();
        let mut nodes: Vec<Node> = Vec::new();
        for (text, route) in pairs {
            if let Some(last) = nodes.last_mut().filter(|last| last.text == text) {
                if last.routes.last() != Some(&route) {
                    last.routes.push(route);
                }
                continue;
            }
            // The text before, or one that begins it, is the longest that can begin this one.
            let mut parent = nodes.len().checked_sub(1);
            while let Some(at) = parent.filter(|at| !text.starts_with(&nodes[*at].text)) {
                parent = nodes[at].parent.map(|at| at as usize);
            }
            nodes.push(Node { text, routes: vec![route], parent: parent.map(|at| at as u32) });
        }
        Self { nodes }
    }

    /// Calls `visit` with the routes of every text that `path` begins with.
    ///
    /// A text that begins `path` sorts before it, and so does everything between the two: it begins with the
    /// text as well. So the nearest text before `path` leads to all of them.
    pub(crate) fn visit(&self, path: &str, mut visit: impl FnMut(&[u32])) {
        let mut next = self.nodes.partition_point(|node| *node.text <= *path).checked_sub(1);
        while let Some(at) = next {
            let node = &self.nodes[at];
            if path.starts_with(&node.text) {
                visit(&node.routes);
            }
            next = node.parent.map(|at| at as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_that_begin_a_path_are_found() {
        let texts = ["/", "/a", "/ab", "/a/b", "/b", "", "/a/b/c"];
        let pairs = texts.iter().zip(0..).map(|(text, at)| ((*text).to_owned(), at)).collect();
        let prefixes = Prefixes::new(pairs);
        for path in ["/a/b/x", "/a/b", "/abc", "/c", "", "/0", "/a/c"] {
            let mut found = Vec::new();
            prefixes.visit(path, |routes| found.extend_from_slice(routes));
            found.sort_unstable();
            let expected: Vec<u32> =
                (0..).zip(texts).filter(|(_, t)| path.starts_with(t)).map(|(at, _)| at).collect();
            assert_eq!(found, expected, "{path}");
        }
    }
}
