/* Ordered set of nodes embedded in the caller's structs: a treap, O(log n), keys are pairs compared in order.
 * No allocation, no locking: both are the caller's. Keys must be distinct. */
#ifndef VGPU_TREE_H
#define VGPU_TREE_H

#include <stdint.h>

struct vgpu_node {
    struct vgpu_node *left, *right;
    uint64_t key[2];
    uint32_t priority;
};

void vgpu_tree_insert(struct vgpu_node **root, struct vgpu_node *node);
void vgpu_tree_remove(struct vgpu_node **root, struct vgpu_node *node); /* node must be in the tree */
struct vgpu_node *vgpu_tree_ceiling(struct vgpu_node *root, uint64_t major, uint64_t minor); /* least key >= or NULL */
struct vgpu_node *vgpu_tree_floor(struct vgpu_node *root, uint64_t major, uint64_t minor); /* greatest key <= or NULL */

#endif
