#include "vgpu/vgpu_tree.h"

#include <stdbool.h>
#include <stddef.h>

static bool below(const uint64_t *a, const uint64_t *b) {
    return a[0] < b[0] || (a[0] == b[0] && a[1] < b[1]);
}

/* Everything of `tree` below `key` to *low, the rest to *high. */
static void split(struct vgpu_node *tree, const uint64_t *key, struct vgpu_node **low, struct vgpu_node **high) {
    while (tree) {
        if (below(tree->key, key)) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = *high = NULL;
}

static struct vgpu_node *join(struct vgpu_node *low, struct vgpu_node *high) {
    struct vgpu_node *root, **at = &root;
    while (low && high) {
        if (low->priority > high->priority) {
            *at = low;
            at = &low->right;
            low = low->right;
        } else {
            *at = high;
            at = &high->left;
            high = high->left;
        }
    }
    *at = low ? low : high;
    return root;
}

/* A hash of the key for a priority: the same calls give the same tree, and no order of addresses degenerates it. */
static uint32_t scramble(const uint64_t *key) {
    uint64_t x = key[0] * 0x9e3779b97f4a7c15u ^ key[1];
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

void vgpu_tree_insert(struct vgpu_node **root, struct vgpu_node *node) {
    node->priority = scramble(node->key);
    while (*root && (*root)->priority >= node->priority)
        root = below((*root)->key, node->key) ? &(*root)->right : &(*root)->left;
    split(*root, node->key, &node->left, &node->right);
    *root = node;
}

void vgpu_tree_remove(struct vgpu_node **root, struct vgpu_node *node) {
    while (*root != node) root = below((*root)->key, node->key) ? &(*root)->right : &(*root)->left;
    *root = join(node->left, node->right);
}

struct vgpu_node *vgpu_tree_ceiling(struct vgpu_node *root, uint64_t major, uint64_t minor) {
    struct vgpu_node *best = NULL;
    while (root) {
        if (below(root->key, (uint64_t[]){major, minor})) {
            root = root->right;
        } else {
            best = root;
            root = root->left;
        }
    }
    return best;
}

struct vgpu_node *vgpu_tree_floor(struct vgpu_node *root, uint64_t major, uint64_t minor) {
    struct vgpu_node *best = NULL;
    while (root) {
        if (below((uint64_t[]){major, minor}, root->key)) {
            root = root->left;
        } else {
            best = root;
            root = root->right;
        }
    }
    return best;
}
