//! The page of an earlier run: a run of some workloads leaves its other parts as they are.

use std::collections::BTreeMap;

/// The parts of a page, without its notes: they have a file of their own.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Machine, versions, commands.
    pub(super) setting: Vec<String>,
    /// Rows, by workload and target.
    targets: BTreeMap<[String; 2], String>,
    pub(super) pictures: Vec<String>,
    /// Tables with their headings, by workload.
    figures: BTreeMap<String, String>,
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut parts = text.split("\n## ");
        let lines = parts.next().unwrap_or_default().lines();
        let lines = lines.filter(|line| line.starts_with("- "));
        page.setting = lines.map(str::to_owned).collect();
        for part in parts {
            match part.split_once('\n') {
                Some(("Targets", targets)) => page.read_targets(targets),
                Some(("Figures", figures)) => page.read_figures(figures),
                _ => {}
            }
        }
        page
    }

    fn read_targets(&mut self, text: &str) {
        for line in text.lines() {
            if line.starts_with("![") {
                self.pictures.push(line.to_owned());
            }
            let mut cells = line.split(" | ");
            if let (Some(workload), Some(target)) = (cells.next(), cells.next()) {
                let workload = workload.trim_start_matches("| ").to_owned();
                let row = format!("{line}\n");
                self.targets.insert([workload, target.to_owned()], row);
            }
        }
    }

    fn read_figures(&mut self, text: &str) {
        for table in text.split("\n### ").skip(1) {
            if let Some((workload, _)) = table.split_once(':') {
                let table = format!("### {}\n", table.trim_end());
                self.figures.insert(workload.to_owned(), table);
            }
        }
    }

    pub(super) fn target(&self, workload: &str, wanted: &str) -> Option<&str> {
        let key = [workload, wanted].map(str::to_owned);
        self.targets.get(&key).map(String::as_str)
    }

    pub(super) fn figures(&self, workload: &str) -> Option<&str> {
        self.figures.get(workload).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart() {
        let page = Page::read(
            "# Benchmarks\n\n- Date: today.\n\n## Targets\n\n| workload | target | lockdog |\n\
             | --- | --- | --- |\n| W1 | p50 <= 2 us | 1 us |\n\n![W1](w1.svg)\n\n## Figures\n\nA pair.\n\n\
             ### W1: locks\n\n| size |\n| 1 |\n\n### W2: others\n\n| 2 |\n\n## Notes\n\n- None.\n",
        );
        assert_eq!(page.setting, ["- Date: today."]);
        assert_eq!(page.pictures, ["![W1](w1.svg)"]);
        assert_eq!(
            page.target("W1", "p50 <= 2 us"),
            Some("| W1 | p50 <= 2 us | 1 us |\n")
        );
        assert_eq!(page.target("W1", "p50 <= 3 us"), None);
        assert_eq!(
            page.figures("W1"),
            Some("### W1: locks\n\n| size |\n| 1 |\n")
        );
        assert_eq!(page.figures("W2"), Some("### W2: others\n\n| 2 |\n"));
        assert_eq!(page.figures("W3"), None);
    }
}
