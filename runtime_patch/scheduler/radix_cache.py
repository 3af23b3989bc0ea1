"""The radix tree: prompts shared with everybody, published steps grafted below them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey, TreeNode

from runtime_patch.scheduler.step_req import StepReq


class HogwildRadixCache(RadixCache):
    """SGLang's plain radix tree, in which a team's published steps are nodes.

    A step node hangs below the team's tip, in the team's own namespace: its KV depends
    on what its writer saw, so no other request may match it. It owns the very slots its
    request wrote; nothing is copied.
    """

    # Called with every ordinary request that has finished and whose tokens are in the tree.
    keep_part: Callable[[Any], None] | None = None

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        if isinstance(params.req, StepReq):
            return self._empty_match_result
        return super().match_prefix(params)

    def checkpoint(self, req: Any, *, up_to: int) -> None:
        """A finished step hands its slots to its team; a live one stays out of the tree."""
        if not isinstance(req, StepReq):
            super().checkpoint(req, up_to=up_to)
            if req.finished() and self.keep_part is not None:
                self.keep_part(req)
        elif req.finished() and req.kind.publishes and not req.aborting:
            row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
            req.stashed_slots = row[:up_to].to(torch.int64, copy=True)
            req.kv.cache_protected_len = up_to

    def graft(
        self, tip: TreeNode, tip_lock: Any, namespace: str, tokens: array, slots: torch.Tensor
    ) -> tuple[TreeNode, Any]:
        """Hang a published step below ``tip`` and lock the path to it.

        tip_lock: the team's lock on the path so far (None while the tip is the prompt,
        which has a lock of its own); released once the new node is locked. Returns the
        node and its lock."""
        node = TreeNode()
        node.parent = tip
        node.key = RadixKey(tokens, extra_key=namespace)
        node.value = slots
        tip.children[node.key.child_key(self.page_size)] = node
        self.evictable_size_ += len(slots)
        self._update_leaf_status(tip)
        self._update_leaf_status(node)
        lock = self.lock(node)
        self.unlock(tip_lock)
        return node, lock

    def prune(self, nodes: list[TreeNode]) -> None:
        """Remove unlocked step nodes, given from the prompt downwards, and free their slots."""
        for node in reversed(nodes):
            if node.lock_ref or node.children:
                raise RuntimeError("a step node that is locked or has children cannot be pruned")
            self.token_to_kv_pool_allocator.free_segment(node.value, start_pos=0)
            self._delete_leaf(node)
