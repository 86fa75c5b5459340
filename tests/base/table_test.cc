// Tables: only their own ids index them.
#include "base/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace piper {
namespace {

using ShelfId = Id<struct ShelfTag>;
using BookId = Id<struct BookTag>;
using Books = Table<BookId, std::string>;

template <class Index>
constexpr bool indexes_books = requires(Books books, Index index) { books[index]; };

TEST(Table, OnlyItsOwnIdsIndexIt) {
  EXPECT_TRUE(indexes_books<BookId>);
  EXPECT_FALSE(indexes_books<ShelfId>);
  EXPECT_FALSE(indexes_books<int>);
  EXPECT_FALSE(indexes_books<size_t>);
}

TEST(Table, AddGivesTheIdOfWhatWasAdded) {
  Books books;
  const BookId first = books.add("first"), second = books.add("second");
  EXPECT_EQ(first, BookId(0));
  EXPECT_EQ(second, BookId(1));
  EXPECT_EQ(books[first], "first");
  EXPECT_EQ(books[second], "second");
  books[first] = "changed";
  EXPECT_THAT(books, testing::ElementsAre("changed", "second"));
}

TEST(Table, IdsAreThoseOfItsItemsInOrder) {
  std::vector<BookId> seen;
  for (const BookId id : Books(3).ids()) seen.push_back(id);
  EXPECT_THAT(seen, testing::ElementsAre(BookId(0), BookId(1), BookId(2)));
  for (const BookId id : Books().ids()) ADD_FAILURE() << id.value;
}

TEST(Table, ContainsWhatIsNeitherAbsentNorBehindTheEnd) {
  const Books books(2);
  EXPECT_TRUE(books.contains(BookId(0)));
  EXPECT_TRUE(books.contains(BookId(1)));
  EXPECT_FALSE(books.contains(BookId(2)));
  EXPECT_FALSE(books.contains(BookId()));
  EXPECT_FALSE(books.contains(BookId(-2)));
}

TEST(Table, HoldsWhatCannotBeCopied) {
  Table<BookId, std::unique_ptr<int>> table;
  const BookId id = table.add(std::make_unique<int>(7));
  EXPECT_EQ(*table[id], 7);
}

}  // namespace
}  // namespace piper
