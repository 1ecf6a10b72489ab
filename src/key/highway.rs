//! HighwayHash with 128 bits. Redisson derives the names of a group's values from it.
//!
//! The algorithm is Google's, "Fast strong hash functions: SipHash/HighwayHash", in its portable form.

use std::array;

/// The hash of `bytes` with Redisson's key: two words, the first one first.
pub(super) fn hash128(bytes: &[u8]) -> [u64; 2] {
    let mut state = State::new();
    let (packets, rest) = bytes.as_chunks::<32>();
    for packet in packets {
        state.update(words(packet));
    }
    if !rest.is_empty() {
        state.update_rest(rest);
    }
    state.finish()
}

type Lanes = [u64; 4];

struct State {
    v0: Lanes,
    v1: Lanes,
    mul0: Lanes,
    mul1: Lanes,
}

impl State {
    fn new() -> Self {
        Self {
            v0: array::from_fn(|i| MUL0[i] ^ KEY[i]),
            v1: array::from_fn(|i| MUL1[i] ^ KEY[i].rotate_left(32)),
            mul0: MUL0,
            mul1: MUL1,
        }
    }

    fn update(&mut self, lanes: Lanes) {
        const LOW: u64 = 0xffff_ffff;
        let Self { v0, v1, mul0, mul1 } = self;
        for i in 0..4 {
            v1[i] = v1[i].wrapping_add(mul0[i]).wrapping_add(lanes[i]);
            mul0[i] ^= (v1[i] & LOW).wrapping_mul(v0[i] >> 32);
            v0[i] = v0[i].wrapping_add(mul1[i]);
            mul1[i] ^= (v0[i] & LOW).wrapping_mul(v1[i] >> 32);
        }
        merge(v1, v0);
        merge(v0, v1);
    }

    /// Adds the last 1 to 31 bytes.
    fn update_rest(&mut self, bytes: &[u8]) {
        let size = bytes.len();
        let whole = size & !3;
        for i in 0..4 {
            self.v0[i] = self.v0[i].wrapping_add(((size as u64) << 32) + size as u64);
            let half = |half: u64| u64::from((half as u32).rotate_left(size as u32));
            self.v1[i] = half(self.v1[i]) | half(self.v1[i] >> 32) << 32;
        }
        let mut packet = [0; 32];
        packet[..whole].copy_from_slice(&bytes[..whole]);
        let rest = &bytes[whole..];
        if size & 16 != 0 {
            packet[28..].copy_from_slice(&bytes[size - 4..]);
        } else if let (Some(first), Some(last)) = (rest.first(), rest.last()) {
            packet[16] = *first;
            packet[17] = rest[rest.len() / 2];
            packet[18] = *last;
        }
        self.update(words(&packet));
    }

    fn finish(mut self) -> [u64; 2] {
        for _ in 0..6 {
            let v0 = self.v0;
            self.update(array::from_fn(|i| v0[(i + 2) % 4].rotate_left(32)));
        }
        let Self { v0, v1, mul0, mul1 } = self;
        array::from_fn(|i| {
            let ours = v0[i].wrapping_add(mul0[i]);
            ours.wrapping_add(v1[i + 2]).wrapping_add(mul1[i + 2])
        })
    }
}

/// Adds the bytes of one half of the state, in another order, to the other half.
fn merge(from: &Lanes, to: &mut Lanes) {
    for i in [0, 2] {
        let (low, high) = (from[i], from[i + 1]);
        to[i] = to[i].wrapping_add(
            ((low & 0xff00_0000) | (high & 0x00ff_0000_0000)) >> 24
                | ((low & 0xff00_0000_0000) | (high & 0x00ff_0000_0000_0000)) >> 16
                | low & 0x00ff_0000
                | (low & 0xff00) << 32
                | (high & 0xff00_0000_0000_0000) >> 8
                | low << 56,
        );
        to[i + 1] = to[i + 1].wrapping_add(
            ((high & 0xff00_0000) | (low & 0x00ff_0000_0000)) >> 24
                | high & 0x00ff_0000
                | (high & 0xff00_0000_0000) >> 16
                | (high & 0xff00) << 24
                | (low & 0x00ff_0000_0000_0000) >> 8
                | (high & 0xff) << 48
                | low & 0xff00_0000_0000_0000,
        );
    }
}

fn words(packet: &[u8; 32]) -> Lanes {
    let (words, _) = packet.as_chunks::<8>();
    array::from_fn(|i| u64::from_le_bytes(words[i]))
}

/// The key that Redisson uses.
const KEY: Lanes = [
    0x9e37_79b9_7f4a_7c15,
    0xf39c_c060_5ced_c834,
    0x1082_276b_f3a2_7251,
    0xf86c_6a11_d0c1_8e95,
];
const MUL0: Lanes = [
    0xdbe6_d5d5_fe4c_ce2f,
    0xa409_3822_299f_31d0,
    0x1319_8a2e_0370_7344,
    0x243f_6a88_85a3_08d3,
];
const MUL1: Lanes = [
    0x3bd3_9e10_cb0e_f593,
    0xc0ac_f169_b5f1_8a8c,
    0xbe54_66cf_34e9_0c6c,
    0x4528_21e6_38d0_1377,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from `org.redisson.misc.Hash.hash128` of Redisson 4.7.0, for the bytes 0, 1, 2 and so on.
    #[test]
    fn the_hashes_are_those_of_redisson() {
        for (size, expected) in [
            (0, [0xb7aa_d9c2_26c6_a36b, 0xb2d4_e4a6_3557_bca6]),
            (1, [0x9ed9_a456_d136_d003, 0x58ac_9f49_faa4_cb70]),
            (3, [0xa283_993a_06b9_2719, 0x971b_b104_2191_29b9]),
            (5, [0x7c2a_c672_4236_d884, 0xce26_ba22_a6dc_8fa3]),
            (16, [0x0a77_902e_253c_74e8, 0x83eb_cd25_3266_7188]),
            (18, [0x5767_4783_3b02_8c32, 0x26fe_8e4a_a804_1ca1]),
            (31, [0xc570_3f35_c679_d59c, 0x8e47_db5e_ece2_e3c3]),
            (32, [0x523e_7207_10ab_7664, 0xb450_e60a_8c48_0d0e]),
            (33, [0x24e1_c473_6e1c_9c1c, 0x297a_0b17_d873_d74f]),
            (63, [0x28e0_0c65_299f_4091, 0xe91d_004f_efb9_447f]),
            (64, [0xbd10_93a1_3004_c0c1, 0x4f6f_6508_dbfa_ff0a]),
            (65, [0x4ed6_2d86_be05_505c, 0xce53_4259_4982_a255]),
            (100, [0x02e3_6770_6094_c0c7, 0xccb9_3934_5842_f5d2]),
        ] {
            let bytes: Vec<u8> = (0..size).collect();
            assert_eq!(hash128(&bytes), expected, "{size} bytes");
        }
    }
}
