//! The TCP ports at which a process listens, from `/proc`, for programs that take port 0 and do not
//! print the port that they got.

use std::collections::BTreeSet;
use std::fs;

/// The state `TCP_LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Returns the listening ports of the processes of this group, in ascending order.
pub fn listening_ports_of_group(group: u32) -> Vec<u16> {
    listening_ports(&processes_of(group).flat_map(sockets_of).collect())
}

/// Returns the listening ports of a process, in ascending order.
pub fn listening_ports_of_process(id: u32) -> Vec<u16> {
    listening_ports(&sockets_of(id).into_iter().collect())
}

fn listening_ports(sockets: &BTreeSet<String>) -> Vec<u16> {
    let mut ports = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for row in fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .skip(1)
        {
            let columns: Vec<_> = row.split_ascii_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = columns[..] else {
                continue;
            };
            if state == LISTEN && sockets.contains(inode) {
                ports.extend(
                    local
                        .rsplit(':')
                        .next()
                        .and_then(|port| u16::from_str_radix(port, 16).ok()),
                );
            }
        }
    }
    ports.into_iter().collect()
}

fn processes_of(group: u32) -> impl Iterator<Item = u32> {
    let ids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(move |id| group_of(*id) == Some(group))
}

/// Returns the process group, the third field behind the program's name in `/proc/ID/stat`.
fn group_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit(')')
        .next()?
        .split_ascii_whitespace()
        .nth(2)?
        .parse()
        .ok()
}

/// Returns the inodes of the sockets that a process has open; empty if it has ended.
fn sockets_of(id: u32) -> Vec<String> {
    let Ok(open) = fs::read_dir(format!("/proc/{id}/fd")) else {
        return Vec::new();
    };
    let targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inode = |target: std::path::PathBuf| {
        Some(
            target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?
                .to_owned(),
        )
    };
    targets.filter_map(inode).collect()
}
